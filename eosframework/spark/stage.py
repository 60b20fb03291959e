"""The stage of a batch: its rows, computed once and stored durably before any shard commits.

The rows are staged as the plan gives them, and sharded when they are read. Sharding them first
would make the stage itself unrepeatable: when an executor is lost while it is written, Spark
computes the lost rows again, and a row whose key is not the same would come to another shard, which
may be written already.

A stage is one directory of Parquet under a name of its own. It counts from the moment at which the
sink's entry names it, so nothing has to be renamed, which object stores cannot do atomically.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from eosframework.backfill.spark.arrow_batches import Table
from eosframework.backfill.spark.jvm import file_system_of, hadoop_path, jvm_of
from eosframework.errors import StartRefused

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_COMPLETE = "_SUCCESS"
"""Written last by Spark."""

_OPTIONS = {
    "maxRecordsPerFile": "0",
    "parquet.enable.dictionary": "false",
    "parquet.column.statistics.enabled": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
}
"""A stage is read as a whole: the least and the greatest value of each page, and dictionaries, cost
time and save none. Without dictionaries the footers have the size of the rows in memory."""

FEW_BYTES = 2**20
"""Largest stage whose rows the driver reads itself: a job of Spark costs more than its rows."""

FEW_FILES = 8
"""The driver lets Spark read more files, which it opens one after the other itself."""

FEW_BYTES_IN_MEMORY = 32 * 2**20
"""Largest stage that the driver reads, uncompressed."""


def write_stage(
    frame: DataFrame, columns: Mapping[str, Column], parent: str
) -> tuple[str, StructType]:
    """Write rows, one column for each sink, and return their directory and schema.

    Args:
        frame: the user's rows.
        columns: by label of the sink.
        parent: directory on a file system that every executor can read.
    """
    directory = f"{parent.rstrip('/')}/{uuid.uuid4().hex}"
    rows = frame.select(*[column.alias(label) for label, column in columns.items()])
    rows.write.options(**_OPTIONS).parquet(directory)
    return directory, rows.schema


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The staged rows of one sink.

    Args:
        spark: a session.
        directory: of the stage.
        label: of the sink.
        schema: of the stage; None: it is read from the files.
    """

    spark: SparkSession
    directory: str
    label: str
    schema: StructType | None = None

    def check(self) -> None:
        """Refuse a stage that cannot be read, or that has no rows of this sink.

        Raises:
            StartRefused: the directory is missing or incomplete, or was written for other sinks.
        """
        place = hadoop_path(self.spark, f"{self.directory}/{_COMPLETE}")
        if not file_system_of(self.spark, place).exists(place):
            raise StartRefused(
                f"sink {self.label!r}: the stage {self.directory} of its incomplete batch is "
                f"missing; rows of the batch may be committed, and computed again they could be "
                f"others. Restore the directory, which is part of the checkpoint; or give the rest "
                f"of the batch up: begin with a new checkpoint and another sink name"
            )
        found = self._reader().parquet(self.directory).columns
        if self.label not in found:
            raise StartRefused(
                f"sink {self.label!r}: the stage {self.directory} was written for "
                f"{', '.join(found)}. Start the query once with the sinks that it had, then change "
                f"them"
            )

    def frame(self) -> DataFrame:
        """Return the rows."""
        return self._reader().parquet(self.directory).select(f"`{self.label}`.*")

    def few(self) -> Table | None:
        """Return the rows as a table of Arrow, in any order; None: they are too many for one."""
        parts = _parts(self.spark, self.directory)
        if sum(part.size for part in parts) > FEW_BYTES:
            return None
        if len(parts) > FEW_FILES:
            return cast(Any, self.frame()).toArrow()
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
        opened = [parquet.ParquetFile(BytesIO(part.content())) for part in parts]
        if sum(map(_bytes_in_memory, opened)) > FEW_BYTES_IN_MEMORY:
            return None
        rows = arrow.concat_tables([one.read(columns=[self.label]) for one in opened])
        return arrow.Table.from_struct_array(rows.column(self.label))

    def _reader(self) -> Any:
        return self.spark.read if self.schema is None else self.spark.read.schema(self.schema)


@dataclass(frozen=True, slots=True)
class ComputedRows:
    """The rows of a sink that are not staged: Spark computes them each time.

    Args:
        rows: columns of the sink.
    """

    rows: DataFrame

    def frame(self) -> DataFrame:
        """Return the rows."""
        return self.rows

    def few(self) -> Table | None:
        """Return None: their number is not known."""
        return None


BatchRows = StagedRows | ComputedRows
"""The rows of a batch for one sink."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of a stage.

    Args:
        size: in bytes.
        content: reads it.
    """

    size: int
    content: Callable[[], bytes]


def _parts(spark: SparkSession, directory: str) -> list[_Part]:
    """Return the files of a stage; those of this machine are read without calls of the JVM."""
    place = hadoop_path(spark, directory)
    address = place.toUri()
    if address.getScheme() == "file":
        found = [one for one in Path(address.getPath()).iterdir() if not _is_hidden(one.name)]
        return [_Part(one.stat().st_size, one.read_bytes) for one in sorted(found)]
    files = file_system_of(spark, place)
    read = jvm_of(spark).org.apache.commons.io.IOUtils.toByteArray
    return [
        _Part(one.getLen(), partial(_content, files, one.getPath(), read))
        for one in files.listStatus(place)
        if not _is_hidden(one.getPath().getName())
    ]


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _content(files: Any, path: Any, read: Any) -> bytes:
    stream = files.open(path)
    try:
        return read(stream)
    finally:
        stream.close()


def _bytes_in_memory(file: Any) -> int:
    groups = range(file.metadata.num_row_groups)
    return sum(int(file.metadata.row_group(number).total_byte_size) for number in groups)


def remove_stage(spark: SparkSession, directory: str) -> None:
    """Remove a stage; one that is gone already is no error."""
    place = hadoop_path(spark, directory)
    file_system_of(spark, place).delete(place, True)


def remove_leftovers(spark: SparkSession, parent: str) -> None:
    """Remove stages that no sink's entry names: their driver ended before it could."""
    place = hadoop_path(spark, parent)
    file_system_of(spark, place).delete(place, True)
