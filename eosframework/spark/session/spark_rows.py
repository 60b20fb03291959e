"""Spark's rows as a task's messages, task by task.

A stage's DataFrame has the columns of `ROW_SCHEMA`. Rows of a task are adjacent and in the task's
order. A row without an offset gets the number of earlier rows of its topic in its task. That is
repeatable, because the input is closed.

Closed ranges of Kafka topics as rows: one Spark partition for each partition, in offset order.
Spark's own connector reads them, `read_committed`: records of aborted transactions, control records
and compacted records have offsets and no rows, so a range has fewer rows than offsets. A range with
records deleted by retention fails the job.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice, repeat
from typing import TYPE_CHECKING, Any, TypeVar, cast

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.config import KafkaSettings
from eosframework.records import TopicPartition
from eosframework.spark.job.job_entry import OffsetRange
from eosframework.spark.session.executors import RecordBatch
from eosframework.spark.session.java_properties import java_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW_SCHEMA = (
    "topic string, partition int, offset bigint, timestamp bigint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
"""Of a stage's rows: `partition` is the task's number, `timestamp` is in milliseconds since the
epoch, a null `offset` is counted."""

RUN_RECORDS = 2000
"""Messages made at once; with many more, garbage collection takes longer than their creation."""

Header = tuple[str, "bytes | None"]


class RowMessage(tuple[str, int, int, "bytes | None", "bytes | None", int, "list[Header] | None"]):
    """A row as a message: topic, partition, offset, key, value, timestamp, headers.

    A tuple, because no other type is created as fast, messages of confluent_kafka included.
    """

    __slots__ = ()

    def topic(self) -> str:
        """The topic it was read from, or that its file replaces."""
        return self[0]

    def partition(self) -> int:
        """The task's partition."""
        return self[1]

    def offset(self) -> int:
        """Its offset, or its number among those of its topic in this task."""
        return self[2]

    def key(self) -> bytes | None:
        """The encoded key."""
        return self[3]

    def value(self) -> bytes | None:
        """The encoded value."""
        return self[4]

    def timestamp(self) -> tuple[int, int]:
        """The timestamp's type, and the timestamp in milliseconds."""
        return 1, self[5]

    def headers(self) -> list[Header] | None:
        """The headers in order, or None where there are none."""
        return self[6]


Runs = Iterator[tuple[TopicPartition, Sequence[RowMessage]]]
"""Adjacent rows of one source partition each."""


def runs(
    batches: Iterable[RecordBatch], *, own_topics: frozenset[str] = frozenset()
) -> Iterator[tuple[int, Runs]]:
    """Yield each task's partition number with its rows, task after task.

    Rows of a task that are not consumed when the next task is requested are skipped.

    Args:
        batches: with the columns of `ROW_SCHEMA`.
        own_topics: internal topics; `WRITER_HEADER` is removed from their records.
    """
    counts = OffsetCounter()
    of_all = (run for batch in batches for run in runs_of(batch, counts, own_topics=own_topics))
    return groupby(of_all, key=_task)


def empty_rows(spark: SparkSession) -> DataFrame:
    """Return an empty DataFrame of `ROW_SCHEMA`."""
    return cast(Any, spark).createDataFrame([], ROW_SCHEMA)


def _task(run: tuple[TopicPartition, Sequence[RowMessage]]) -> int:
    return run[0].partition


class OffsetCounter:
    """Numbers of rows without an offset by topic, within the current task."""

    def __init__(self) -> None:
        self._task: int | None = None
        self._by_topic: dict[str, int] = {}

    def take(self, source: TopicPartition, rows: int) -> range:
        """Return the offsets of the next rows of a source."""
        if source.partition != self._task:
            self._task, self._by_topic = source.partition, {}
        first = self._by_topic.get(source.topic, 0)
        self._by_topic[source.topic] = first + rows
        return range(first, first + rows)


def runs_of(
    batch: RecordBatch, counts: OffsetCounter, *, own_topics: frozenset[str] = frozenset()
) -> Runs:
    """Yield the rows of one batch, in order; see `runs`."""
    stretches = _stretches(batch)
    offsets: list[int] = batch.column("offset").to_pylist()
    if batch.column("offset").null_count:
        offsets = _with_counted(offsets, stretches, counts)
    one = stretches[0][0] if len(stretches) == 1 else None
    rows = map(
        RowMessage,
        cast(
            "Iterator[Any]",
            zip(
                repeat(one.topic) if one else batch.column("topic").to_pylist(),
                repeat(one.partition) if one else batch.column("partition").to_pylist(),
                offsets,
                batch.column("key").to_pylist(),
                batch.column("value").to_pylist(),
                batch.column("timestamp").to_pylist(),
                _headers(batch, own_topics),
                strict=False,
            ),
        ),
    )
    for source, count in stretches:
        for first in range(0, count, RUN_RECORDS):
            yield source, list(islice(rows, min(RUN_RECORDS, count - first)))


def _stretches(batch: RecordBatch) -> list[tuple[TopicPartition, int]]:
    """Return the adjacent rows of the same source partition, as partition and number, in order."""
    topics, partitions = batch.column("topic"), batch.column("partition")
    if len(topics.unique()) <= 1 and len(partitions.unique()) <= 1:
        count = batch.num_rows
        return [(TopicPartition(topics[0].as_py(), partitions[0].as_py()), count)] if count else []
    pairs = groupby(zip(topics.to_pylist(), partitions.to_pylist(), strict=True))
    return [(TopicPartition(*pair), sum(1 for _ in rows)) for pair, rows in pairs]


def _with_counted(
    offsets: Sequence[int | None],
    stretches: Iterable[tuple[TopicPartition, int]],
    counts: OffsetCounter,
) -> list[int]:
    """Return the offsets of all rows, with counted ones in place of nulls."""
    found: list[int] = []
    for source, count in stretches:
        first = offsets[len(found)]
        known = offsets[len(found) : len(found) + count]
        found += counts.take(source, count) if first is None else cast("list[int]", known)
    return found


def _headers(batch: RecordBatch, own_topics: frozenset[str]) -> Iterable[list[Header] | None]:
    column = batch.column("headers")
    if len(column.flatten()) == 0:
        return repeat(None)
    lists: list[list[dict[str, Any]] | None] = column.to_pylist()
    headers = [[(h["key"], h["value"]) for h in one] if one else None for one in lists]
    if own_topics.isdisjoint(batch.column("topic").unique().to_pylist()):
        return headers
    topics: list[str] = batch.column("topic").to_pylist()
    return [
        _without_writer(one) if one is not None and topic in own_topics else one
        for topic, one in zip(topics, headers, strict=True)
    ]


def _without_writer(headers: list[Header]) -> list[Header] | None:
    return [header for header in headers if header[0] != WRITER_HEADER] or None


T = TypeVar("T")

_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "unix_millis(timestamp) AS timestamp",
    "key",
    "value",
    "headers",
)


def kafka_rows(
    spark: SparkSession,
    settings: KafkaSettings,
    ranges: Mapping[TopicPartition, OffsetRange],
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the records of the ranges as rows (`spark_rows.ROW_SCHEMA`).

    Args:
        spark: a session of the backfill.
        settings: the cluster.
        ranges: by partition; an empty one has no Spark partition.
        options: for the Java client, as `kafka.NAME`; they override the settings.

    Raises:
        ConfigurationError: a property of the settings has no counterpart in Java.
    """
    properties = java_properties(settings, options or {})
    read = {source: part for source, part in ranges.items() if part.first < part.end}
    if not read:
        return empty_rows(spark)
    chosen = {
        "assign": {topic: sorted(of_topic) for topic, of_topic in _by_topic(read).items()},
        "startingOffsets": _by_topic({source: part.first for source, part in read.items()}),
        "endingOffsets": _by_topic({source: part.end for source, part in read.items()}),
    }
    reader = spark.read.format("kafka").options(**properties)
    reader = reader.options(**{name: json.dumps(value) for name, value in chosen.items()})
    reader = reader.options(includeHeaders="true", failOnDataLoss="true")
    return reader.load().selectExpr(*_COLUMNS)


def _by_topic(values: Mapping[TopicPartition, T]) -> dict[str, dict[int, T]]:
    found: dict[str, dict[int, T]] = {}
    for source, value in values.items():
        found.setdefault(source.topic, {})[source.partition] = value
    return found
