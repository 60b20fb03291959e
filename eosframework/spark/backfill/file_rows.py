"""Files that replace a source topic, as rows in the order (event time, path, row).

    1. the files are the pinned ones  2. splits are the same in each read
    3. each row becomes a record with its place; an invalid row ends the job

Rows of Parquet and Iceberg have numbers. Otherwise a row's number is that of its split, and then
the number of rows before it in the split.

Rows of files as the records that live producers would have sent, each with its place.
A row is one record: its columns as a JSON object, or the result of the user's function. Its
partition is the one that a live producer would have chosen for its key. An error names the file and
the row.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from eosframework.engine.conversions import as_bytes
from eosframework.errors import ConfigurationError, EosError, RunError, raised_by_functions
from eosframework.kafka.client.partitioner import partition_of
from eosframework.records import Record, as_milliseconds
from eosframework.serialization import references
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.serdes import BYTES, STRING
from eosframework.spark.backfill.file_lists import (
    VERSION,
    check_pinned,
    check_version,
    current_version,
    listed,
    partition_base,
    refusing_table,
)
from eosframework.spark.job.job_entry import Files, PinnedFile, PinnedTable
from eosframework.spark.session.executors import (
    BatchFunction,
    RecordBatch,
    batch_of,
    encoded,
    headers_type,
    map_batches,
    pack_value,
    unpack_value,
)
from eosframework.spark.session.ordering import PLACED_SCHEMA
from eosframework.spark.session.values import (
    NESTED,
    json,
    json_refusals,
    quoted,
    text,
    unwritable_as_json,
    without_negative_zero,
)
from eosframework.topology.graph.graph import Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FromRow = Callable[[dict[str, Any]], Record]
"""A user's function of a row, columns by name."""

_Placed = tuple[
    str, int, int, int, "bytes | None", "bytes | None", "list[dict[str, Any]] | None", int, str
]
"""The columns of `ordering.PLACED_SCHEMA`, in their order."""

_COLUMN = "column:"
"""Prefix of a partitioner that takes the partition from a column."""

_REMEMBERED_KEYS = 100_000


_ROW_BITS = 40
"""More rows than a split has; splits of columns may have more rows than bytes."""


class _RowPlace(NamedTuple):
    """The place of a row.

    Args:
        start: begin of its split in bytes; 0 where rows are numbered throughout the file.
        row: number of rows before it.
        split: number of splits before its own.
    """

    path: str
    start: int
    row: int
    split: int = 0

    @property
    def number(self) -> int:
        """Grows from row to row of a file."""
        return (self.split << _ROW_BITS) + self.row

    def __str__(self) -> str:
        behind = f" after byte {self.start}" if self.start else ""
        return f"row {self.row}{behind} of {self.path}"


class _RecordMaker:
    """Makes records from the rows of files that replace a topic.

    Args:
        topic: its name.
        files: their format and options.
        source: of the topic.
        from_row: the user's function; None: a row's columns are the value.

    Raises:
        ConfigurationError: the partitioner is unknown.
    """

    def __init__(
        self, topic: str, files: Files, source: Source, from_row: _FromRow | None = None
    ) -> None:
        self._topic = topic
        self._files = files
        self._source = source
        self._from_row = from_row
        self._column = _column_of(files.partitioner)
        self._partition_of = None if self._column else _partitioner(files)

    def make(self, row: dict[str, Any], spot: _RowPlace) -> _Placed:
        """Return the record of a row, with its place.

        Args:
            row: its columns.
            spot: its place.

        Raises:
            RunError: the row is invalid; names the file and the row.
        """
        try:
            record = self._called(row) if self._from_row else Record(row[_KEY], row[_VALUE], 0)
            key, value = self._encoded_key(record.key), record.value
            time = self._event_time(value, record.timestamp)
            timestamp = time if self._from_row is None else as_milliseconds(record.timestamp)
            partition = self._partition(row, key, spot)
        except raised_by_functions() as error:
            raise RunError(
                f"{spot} cannot be made a record of topic {self._topic!r}: "
                f"{type(error).__name__}: {error}; correct the file and start another job, or give "
                f"the source a function record=MODULE:FUNCTION that makes a record of every row"
            ) from error
        headers = [{"key": name, "value": v} for name, v in record.headers] or None
        own = self._topic, partition, spot.number, timestamp, key, value, headers
        return (*own, time, spot.path)

    def _called(self, row: dict[str, Any]) -> Record:
        """Return the user function's record for a row, its value encoded."""
        assert self._from_row is not None
        record: Any = self._from_row(row)
        if not isinstance(record, Record):
            raise TypeError(f"the function {self._files.record} gave {record!r:.60}, not a Record")
        made = cast("Record", record)
        encode = self._source.value.encode or as_bytes
        return made.replace(value=None if made.value is None else encode(made.value))

    def _encoded_key(self, key: Any) -> bytes | None:
        if key is None:
            return None
        if (encode := key_encoder(self._source.key)) is not None:
            return encode(key)
        return key.encode() if isinstance(key, str) else as_bytes(key)

    def _event_time(self, value: bytes | None, timestamp: int) -> int:
        """Return the event time by the source's timestamp function, else the timestamp."""
        if self._source.timestamp is None or value is None:
            return as_milliseconds(timestamp)
        decode = self._source.value.decode
        return as_milliseconds(self._source.timestamp.call(decode(value) if decode else value))

    def _partition(self, row: dict[str, Any], key: bytes | None, spot: _RowPlace) -> int:
        count = self._files.partitions
        if self._column is not None:
            partition = row[self._column]
            if type(partition) is not int or not 0 <= partition < count:
                raise ValueError(f"{self._column}={partition!r} is not a partition of {count}")
            return partition
        if key is None or self._partition_of is None:
            return (zlib.crc32(spot.path.encode()) + spot.number) % count
        return self._partition_of(key)


def _needed_columns(files: Files) -> list[str]:
    """Return the required columns of files."""
    return [name for name in (files.key, _column_of(files.partitioner)) if name is not None]


def _column_of(partitioner: str) -> str | None:
    return partitioner.removeprefix(_COLUMN) if partitioner.startswith(_COLUMN) else None


def _partitioner(files: Files) -> Callable[[bytes], int]:
    """Return the function that assigns a key to its partition.

    Raises:
        ConfigurationError: the partitioner is unknown.
    """
    count = files.partitions
    if files.partitioner == "murmur2":

        @lru_cache(_REMEMBERED_KEYS)
        def as_java(key: bytes) -> int:
            return partition_of(key, count)

        return as_java
    if files.partitioner == "crc32":
        return lambda key: zlib.crc32(key) % count
    raise ConfigurationError(
        f"there is no partitioner {files.partitioner!r}; expected murmur2 (Kafka's own clients and "
        f"this framework), crc32 (librdkafka's default) or {_COLUMN}NAME, the column with the "
        f"partition's number"
    )


_PATH, _START, _ROW, _BROKEN, _KEY = "__path", "__start", "__row", "__broken", "__key"
_VALUE, _REFUSED = "__value", "__refused"

_LITERAL_PATHS = "__globPaths__"
"""Option of Spark that controls whether paths are patterns."""

_CAREFUL = {
    "csv": {"enforceSchema": "false"},
    "json": {},
    "parquet": {"mergeSchema": "true"},
}
"""Each format's options by default: a CSV file with another header is an error, and columns of all
Parquet files are read. JSON has the columns of all files in any case."""

_TEXTS = ("csv", "json")
"""Formats with malformed rows, which are detected unless the user sets a mode."""

_ERROR_CLASS = re.compile(r"\[[A-Z_.]+\] [^\n]*")
"""A Spark error class with its message."""

_FAILED_FILE = re.compile(
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (.+?)\. "
)
_CAUSE = re.compile(r"Caused by: [\w.$]+: (.+?)\n\tat ", re.DOTALL)


def pin(
    spark: SparkSession, format: str, paths: Sequence[str], options: Mapping[str, str]
) -> tuple[PinnedFile, ...]:
    """Return the files at the given paths, sorted, once Spark has read their columns.

    Args:
        spark: a session of the backfill.
        format: parquet, json or csv.
        paths: files, directories and patterns, on any file system that Spark supports.
        options: of Spark for the format.

    Raises:
        ConfigurationError: a path has no file, or Spark cannot read them with these options, or
            not with the same columns.
    """
    files = listed(spark, paths)
    read = files if format == "parquet" else files[:1]  # in text formats Spark reads whole files
    _loaded(spark, format, [file.path for file in read], _based(spark, files, options))
    return files


def pin_table(
    spark: SparkSession, format: str, name: str, options: Mapping[str, str]
) -> PinnedTable:
    """Return the current version of a table, or the one in its options, once it can be read.

    Raises:
        ConfigurationError: the session cannot read the format, or the table has no such version.
    """
    table = current_version(spark, format, name, options)
    _table_rows(spark, format, table, options)
    return table


def failed_read(error: BaseException) -> ConfigurationError | None:
    """Return the error for a file that Spark could not read; None: it is another failure.

    Args:
        error: of a Spark job.
    """
    if (found := _FAILED_FILE.search(str(error))) is None:
        return None
    causes: list[str] = _CAUSE.findall(str(error))
    why = " ".join(causes[-1].split()) if causes else "Spark says no reason"
    return ConfigurationError(
        f"file {found[1]} cannot be read: {why}. If the file system was unavailable, start the job "
        f"again to resume; else correct the file, or leave it out, and start another job"
    )


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
    if source.timestamp is None and files.record is None:
        raise ConfigurationError(
            f"rows of the files for topic {topic!r} have no time: its source uses the "
            f"record's timestamp, and rows have none. Give the source a timestamp function, or the "
            f"files a function for records, record=MODULE:FUNCTION"
        )
    from_row = None if files.record is None else references.find(files.record)
    _RecordMaker(topic, files, source, from_row)  # refused here, not on an executor
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(files.split_bytes))
    rows = _rows_of(spark, files)
    for column in _needed_columns(files):
        if column not in rows.columns:
            raise ConfigurationError(
                f"the files for topic {topic!r} have no column {column!r}; they have "
                f"{', '.join(name for name in rows.columns if name != _BROKEN)}"
            )
    bare = files.model_copy(update={"files": ()})
    carried = pack_value((topic, bare, source, from_row), f"the source of topic {topic!r}")
    columns = ["*"] if files.record is not None else _parts(rows, files, source)
    placed = rows.select(*columns, *_place(files.format))
    return map_batches(placed, _making(carried), PLACED_SCHEMA)


def _rows_of(spark: SparkSession, files: Files) -> DataFrame:
    if files.table is not None:
        check_version(spark, files.format, files.table)
        return _table_rows(spark, files.format, files.table, files.options)
    check_pinned(spark, files.files)
    options = _based(spark, files.files, files.options)
    return _loaded(spark, files.format, [file.path for file in files.files], options)


def _table_rows(
    spark: SparkSession, format: str, table: PinnedTable, options: Mapping[str, str]
) -> DataFrame:
    reader = spark.read.format(format).options(**options)
    with refusing_table(f"version {table.version} of {format}:{table.name}"):
        return reader.option(VERSION, str(table.version)).load(table.name)


def _parts(rows: DataFrame, files: Files, source: Source) -> list[Column]:
    """Return the parts of records without a function: the values are those of a sink of Spark.

    Raises:
        ConfigurationError: a column has no form in JSON.
    """
    from pyspark.sql.functions import coalesce, col, lit, struct, when

    kinds = {f.name: f.dataType for f in rows.schema.fields if f.name != _BROKEN}
    refused = [lit(None).cast("string")]
    for name, kind in kinds.items():
        if (why := unwritable_as_json(kind)) is not None:
            raise ConfigurationError(
                f"column {name!r} of the files cannot be written as JSON: {why}; or give the "
                f"source a function record=MODULE:FUNCTION that makes a record of every row"
            )
        refused += [
            when(found, lit(x)) for found, x in json_refusals(col(quoted(name)), kind, name)
        ]
    whole = [field for field in rows.schema.fields if field.name != _BROKEN]
    value = json(struct(*(col(quoted(name)) for name in kinds)), type(rows.schema)(whole))
    partition = _column_of(files.partitioner)
    others = [name for name in (partition, _BROKEN) if name in rows.columns]
    return [
        value.cast("binary").alias(_VALUE),
        _key(rows, files, source).alias(_KEY),
        coalesce(*refused).alias(_REFUSED),
        *(col(quoted(name)) for name in others),
    ]


def _key(rows: DataFrame, files: Files, source: Source) -> Column:
    """Return the column of keys: for serdes of text and bytes as a sink of Spark writes it."""
    from pyspark.sql.functions import col, lit

    if files.key is None:
        return lit(None).cast("string")
    key, kind = col(quoted(files.key)), rows.schema[files.key].dataType
    if source.key.name not in (BYTES.name, STRING.name) or kind.typeName() == "binary":
        return key
    exact = without_negative_zero(key, kind)
    return (json if kind.typeName() in NESTED else text)(exact, kind)


def _based(
    spark: SparkSession, files: Sequence[PinnedFile], options: Mapping[str, str]
) -> dict[str, str]:
    """Return the options of Spark with which directories NAME=VALUE are columns."""
    base = partition_base(spark, files, options)
    return {**options} if base is None else {**options, "basePath": base}


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
    detecting = format in _TEXTS and "mode" not in options
    careful = {**_CAREFUL[format], **({"columnNameOfCorruptRecord": _BROKEN} if detecting else {})}
    reader = spark.read.format(format).options(**{**careful, **given, _LITERAL_PATHS: "false"})
    try:
        if "schema" in options:
            reader = reader.schema(options["schema"])
        rows = reader.load(list(paths))
        if detecting and _BROKEN not in rows.columns:
            rows = reader.schema(rows.schema.add(_BROKEN, "string")).load(list(paths))
    except (PySparkException, Py4JJavaError) as error:
        if "[CANNOT_MERGE_SCHEMAS]" in str(error):
            raise _unmergeable(spark, paths, options) from error
        said = str(error).strip()
        reason = found[0] if (found := _ERROR_CLASS.search(said)) else said.splitlines()[0]
        raise _unreadable(format, paths, reason) from error
    if set(rows.columns) <= {_BROKEN}:
        raise _unreadable(format, paths, "they have no columns")
    return rows


def _unmergeable(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]
) -> ConfigurationError:
    """Return the error for Parquet files with different types of a column; names the first one."""
    from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.errors import PySparkException

    alone = {name: value for name, value in options.items() if name != "basePath"}
    reader = spark.read.options(**{**alone, "mergeSchema": "true", _LITERAL_PATHS: "false"})

    def fails(count: int) -> bool:
        try:
            reader.parquet(*paths[:count])
        except (PySparkException, Py4JJavaError):
            return True
        return False

    place = bisect_left(range(1, len(paths)), True, key=fails)
    before, own = dict(reader.parquet(*paths[:place]).dtypes), reader.parquet(paths[place]).dtypes
    kinds = [f"{name} is {before[name]} and {it}" for name, it in own if before.get(name, it) != it]
    return ConfigurationError(
        f"file {paths[place]} has other types than the files before it, from {paths[0]} on: "
        f"{', '.join(kinds)}. Write the files with the same types, or state types that Spark can "
        f"read all of them with: option.schema='NAME TYPE, …'"
    )


def _unreadable(format: str, paths: Sequence[str], reason: str) -> ConfigurationError:
    others = f" and {len(paths) - 1} others" if len(paths) > 1 else ""
    return ConfigurationError(
        f"Spark cannot read {paths[0]}{others} as {format}: {reason}; correct the source's format "
        f"or options"
    )


def _place(format: str) -> list[Column]:
    """Return the columns of a row's place."""
    from pyspark.sql.functions import expr

    names = (_PATH, _START, _ROW)
    return [expr(text).alias(name) for text, name in zip(_PLACES[format], names, strict=True)]


_IN_SPLITS = ("_metadata.file_path", "_metadata.file_block_start", "CAST(NULL AS BIGINT)")

_PLACES = {
    "parquet": ("_metadata.file_path", "0L", "_metadata.row_index"),
    "json": _IN_SPLITS,
    "csv": _IN_SPLITS,
    "delta": _IN_SPLITS,
    "iceberg": ("_file", "0L", "_pos"),
}
"""Expressions for the file of a row, the begin of its split, and its number; null: counted."""


def _making(carried: bytes) -> BatchFunction:
    """Return the function that makes records from rows with places."""

    def make(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        topic, files, source, from_row = unpack_value(carried)
        maker = _RecordMaker(topic, files, source, from_row)
        spots = _RowNumbers(files.split_bytes)
        for batch in batches:
            rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="strict")
            try:
                placed = [_made(maker, row, spots.take(row)) for row in rows]
            except EosError as error:
                raise encoded(error) from error
            yield batch_of(placed, _types())

    return make


def _made(maker: _RecordMaker, row: dict[str, Any], spot: _RowPlace) -> _Placed:
    if (refused := row.get(_REFUSED)) is not None:
        raise RunError(
            f"{spot} {refused}; correct the file and start another job, or give the source a "
            f"function record=MODULE:FUNCTION that makes a record of every row"
        )
    if (broken := row.pop(_BROKEN, None)) is not None:
        raise RunError(
            f"{spot} cannot be read: {broken:.80}; correct the file and start another job, or "
            f"leave such rows out with option.mode=DROPMALFORMED"
        )
    return maker.make(row, spot)


class _RowNumbers:
    """Numbers rows of formats without row numbers, split by split.

    Args:
        split_bytes: size of splits.
    """

    def __init__(self, split_bytes: int) -> None:
        self._split_bytes = split_bytes
        self._split: tuple[str, int] | None = None
        self._rows = 0

    def take(self, row: dict[str, Any]) -> _RowPlace:
        """Remove the place columns from a row, and return its place."""
        path, start, number = row.pop(_PATH), row.pop(_START), row.pop(_ROW)
        if number is not None:
            return _RowPlace(path, 0, number)
        if (path, start) != self._split:
            self._split, self._rows = (path, start), 0
        self._rows += 1
        return _RowPlace(path, start, self._rows - 1, start // self._split_bytes)


def _types() -> dict[str, Any]:
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    kinds = ("string", "int32", "int64", "int64", "binary", "binary", headers_type())
    placed = {"order_time": "int64", "writer": "string"}
    return {**dict(zip(names, kinds, strict=True)), **placed}
