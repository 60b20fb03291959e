"""Files that replace a source topic, as rows in the order (event time, path, row).

    1. the files are the pinned ones  2. splits are the same in each read
    3. each row becomes a record with its place; an invalid row ends the job

Rows of Parquet have numbers. In text formats a row's number is the begin of its split, in bytes,
plus the rows before it in the split: every row has at least a byte, so numbers grow within a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eosframework.backfill.job.job_entry import Files, PinnedFile
from eosframework.backfill.spark.arrow_batches import (
    BatchFunction,
    RecordBatch,
    batch_of,
    headers_type,
    map_batches,
)
from eosframework.backfill.spark.executor_failures import encoded
from eosframework.backfill.spark.ordering import PLACED_SCHEMA
from eosframework.backfill.spark.pickling import pack_value, unpack_value
from eosframework.backfill.spark.pinned import check_pinned, listed
from eosframework.backfill.spark.record_making import Placed, RecordMaker, RowPlace, needed_columns
from eosframework.errors import ConfigurationError, EosError, RunError
from eosframework.serialization import references
from eosframework.topology.graph.graph import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PATH, _START, _ROW, _BROKEN = "__path", "__start", "__row", "__broken"

_LITERAL_PATHS = "__globPaths__"
"""Option of Spark that controls whether paths are patterns."""

_CAREFUL = {
    "csv": {"enforceSchema": "false", "columnNameOfCorruptRecord": _BROKEN},
    "json": {"columnNameOfCorruptRecord": _BROKEN},
}
"""Columns are matched by each file's header, and malformed rows are detected."""


_ERROR_CLASS = re.compile(r"\[[A-Z_.]+\] [^\n]*")
"""A Spark error class with its message."""


def pin(
    spark: SparkSession, format: str, paths: Sequence[str], options: Mapping[str, str]
) -> tuple[PinnedFile, ...]:
    """Return the files at the given paths, sorted, once Spark has read the first one's schema.

    Args:
        spark: a session of the backfill.
        format: parquet, json or csv.
        paths: files, directories and patterns, on any file system that Spark supports.
        options: of Spark for the format.

    Raises:
        ConfigurationError: a path has no file, or Spark cannot read them with these options.
    """
    files = listed(spark, paths)
    _loaded(spark, format, [files[0].path], options)
    return files


def file_rows(spark: SparkSession, topic: str, files: Files, source: Source) -> DataFrame:
    """Return the rows of files as records of the topic that they replace, with their places.

    Args:
        spark: a session of the backfill.
        topic: its name.
        files: pinned.
        source: of the topic.

    Raises:
        ConfigurationError: a file has changed or lacks a column, or rows have no time.
        TopologyError: the function for records does not exist, or cannot be pickled.
    """
    check_pinned(spark, files.files)
    if source.timestamp is None and files.record is None:
        raise ConfigurationError(
            f"rows of the files for topic {topic!r} have no time: its source uses the "
            f"record's timestamp, and rows have none. Give the source a timestamp function, or the "
            f"files a function for records, record=MODULE:FUNCTION"
        )
    from_row = None if files.record is None else references.find(files.record)
    RecordMaker(topic, files, source, from_row)  # refused here, not on an executor
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(files.split_bytes))
    rows = _loaded(spark, files.format, [file.path for file in files.files], files.options)
    for column in needed_columns(files):
        if column not in rows.columns:
            raise ConfigurationError(
                f"the files for topic {topic!r} have no column {column!r}; they have "
                f"{', '.join(name for name in rows.columns if name != _BROKEN)}"
            )
    bare = files.model_copy(update={"files": ()})
    carried = pack_value((topic, bare, source, from_row), f"the source of topic {topic!r}")
    return map_batches(_with_places(rows, files.format), _making(carried), PLACED_SCHEMA)


def _loaded(
    spark: SparkSession, format: str, paths: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """Return the columns of files; for text formats without an explicit mode, malformed rows too.

    Raises:
        ConfigurationError: Spark cannot read them with these options.
    """
    from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.errors import PySparkException

    given = {name: value for name, value in options.items() if name != "schema"}
    careful = {} if "mode" in options else _CAREFUL.get(format, {})
    reader = spark.read.format(format).options(**careful, **given).option(_LITERAL_PATHS, "false")
    try:
        if "schema" in options:
            reader = reader.schema(options["schema"])
        rows = reader.load(list(paths))
        if careful and _BROKEN not in rows.columns:
            rows = reader.schema(rows.schema.add(_BROKEN, "string")).load(list(paths))
    except (PySparkException, Py4JJavaError) as error:
        text = str(error).strip()
        reason = found[0] if (found := _ERROR_CLASS.search(text)) else text.splitlines()[0]
        raise _unreadable(format, paths, reason) from error
    if set(rows.columns) <= {_BROKEN}:
        raise _unreadable(format, paths, "they have no columns")
    return rows


def _unreadable(format: str, paths: Sequence[str], reason: str) -> ConfigurationError:
    others = f" and {len(paths) - 1} others" if len(paths) > 1 else ""
    return ConfigurationError(
        f"Spark cannot read {paths[0]}{others} as {format}: {reason}; correct the source's format "
        f"or options"
    )


def _with_places(rows: DataFrame, format: str) -> DataFrame:
    """Return rows with their places in files."""
    from pyspark.sql.functions import col, lit

    numbered = format == "parquet"
    return rows.select(
        "*",
        col("_metadata.file_path").alias(_PATH),
        (lit(0) if numbered else col("_metadata.file_block_start")).alias(_START),
        (col("_metadata.row_index") if numbered else lit(None).cast("bigint")).alias(_ROW),
    )


def _making(carried: bytes) -> BatchFunction:
    """Return the function that makes records from rows with places."""

    def make(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        maker = RecordMaker(*unpack_value(carried))
        spots = _RowNumbers()
        for batch in batches:
            rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="strict")
            try:
                placed = [_made(maker, row, spots.take(row)) for row in rows]
            except EosError as error:
                raise encoded(error) from error
            yield batch_of(placed, _types())

    return make


def _made(maker: RecordMaker, row: dict[str, Any], spot: RowPlace) -> Placed:
    if (broken := row.pop(_BROKEN, None)) is not None:
        raise RunError(
            f"{spot} cannot be read: {broken:.80}; correct the file and start another job, or "
            f"leave such rows out with option.mode=DROPMALFORMED"
        )
    return maker.make(row, spot)


class _RowNumbers:
    """Numbers rows of formats without row numbers, split by split."""

    def __init__(self) -> None:
        self._split: tuple[str, int] | None = None
        self._rows = 0

    def take(self, row: dict[str, Any]) -> RowPlace:
        """Remove the place columns from a row, and return its place."""
        path, start, number = row.pop(_PATH), row.pop(_START), row.pop(_ROW)
        if number is not None:
            return RowPlace(path, 0, number)
        if (path, start) != self._split:
            self._split, self._rows = (path, start), 0
        self._rows += 1
        return RowPlace(path, start, self._rows - 1)


def _types() -> dict[str, Any]:
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    kinds = ("string", "int32", "int64", "int64", "binary", "binary", headers_type())
    placed = {"order_time": "int64", "writer": "string"}
    return {**dict(zip(names, kinds, strict=True)), **placed}
