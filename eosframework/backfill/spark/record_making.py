"""Rows of files as the records that live producers would have sent, each with its place.

A row is one record: its columns as a JSON object, or the result of the user's function. Its
partition is the one that a live producer would have chosen for its key. An error names the file and
the row.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, cast

import orjson

from eosframework.backfill.job.job_entry import Files
from eosframework.errors import ConfigurationError, RunError, raised_by_functions
from eosframework.kafka.client.partitioner import partition_of
from eosframework.processing.conversions import as_bytes
from eosframework.records import Record, as_milliseconds
from eosframework.serialization.key_bytes import key_encoder
from eosframework.topology.graph.graph import Source

FromRow = Callable[[dict[str, Any]], Record]
"""A user's function of a row, columns by name."""

Placed = tuple[
    str, int, int, int, "bytes | None", "bytes | None", "list[dict[str, Any]] | None", int, str
]
"""The columns of `ordering.PLACED_SCHEMA`, in their order."""

COLUMN = "column:"
"""Prefix of a partitioner that takes the partition from a column."""

_REMEMBERED_KEYS = 100_000


class RowPlace(NamedTuple):
    """The place of a row.

    Args:
        start: begin of its split in bytes; 0 where rows are numbered throughout the file.
        row: number of rows before it.
    """

    path: str
    start: int
    row: int

    @property
    def number(self) -> int:
        """Grows from row to row of a file: every row has at least a byte."""
        return self.start + self.row

    def __str__(self) -> str:
        behind = f" after byte {self.start}" if self.start else ""
        return f"row {self.row}{behind} of {self.path}"


class RecordMaker:
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
        self, topic: str, files: Files, source: Source, from_row: FromRow | None = None
    ) -> None:
        self._topic = topic
        self._files = files
        self._source = source
        self._from_row = from_row
        self._column = _column_of(files.partitioner)
        self._partition_of = None if self._column else _partitioner(files)

    def make(self, row: dict[str, Any], spot: RowPlace) -> Placed:
        """Return the record of a row, with its place.

        Args:
            row: its columns.
            spot: its place.

        Raises:
            RunError: the row is invalid; names the file and the row.
        """
        try:
            record = self._from_columns(row) if self._from_row is None else self._called(row)
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

    def _from_columns(self, row: dict[str, Any]) -> Record:
        """Return a row as a record; its time is taken from the value."""
        key = None if self._files.key is None else row[self._files.key]
        return Record(key, orjson.dumps(row, default=_plain), 0)

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

    def _partition(self, row: dict[str, Any], key: bytes | None, spot: RowPlace) -> int:
        count = self._files.partitions
        if self._column is not None:
            partition = row[self._column]
            if type(partition) is not int or not 0 <= partition < count:
                raise ValueError(f"{self._column}={partition!r} is not a partition of {count}")
            return partition
        if key is None or self._partition_of is None:
            return (zlib.crc32(spot.path.encode()) + spot.number) % count
        return self._partition_of(key)


def needed_columns(files: Files) -> list[str]:
    """Return the required columns of files."""
    return [name for name in (files.key, _column_of(files.partitioner)) if name is not None]


def _column_of(partitioner: str) -> str | None:
    return partitioner.removeprefix(COLUMN) if partitioner.startswith(COLUMN) else None


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
        f"this framework), crc32 (librdkafka's default) or {COLUMN}NAME, the column with the "
        f"partition's number"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
