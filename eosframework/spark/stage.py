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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eosframework.backfill.spark.jvm import file_system_of, hadoop_path
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
time and save none."""


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

    def _reader(self) -> Any:
        return self.spark.read if self.schema is None else self.spark.read.schema(self.schema)


def remove_stage(spark: SparkSession, directory: str) -> None:
    """Remove a stage; one that is gone already is no error."""
    place = hadoop_path(spark, directory)
    file_system_of(spark, place).delete(place, True)


def remove_leftovers(spark: SparkSession, parent: str) -> None:
    """Remove stages that no sink's entry names: their driver ended before it could."""
    place = hadoop_path(spark, parent)
    file_system_of(spark, place).delete(place, True)
