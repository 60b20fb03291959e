"""Sorts the rows of several sources into the order of a live task.

A live task takes the record with the smallest event time among the heads of its source partitions
(`engine.task.input_queues.TimestampQueue`), and keeps the order within a partition. Sorting gives
the same order: by the largest event time of the partition up to the record, then by topic (tables
first), then by place in the partition. A record that is older than an earlier one of its partition
directly follows that one, because no other head is older.

    O1. each record gets that largest time, where its partition is read in offset order
    O2. rows are shuffled so that each task has a Spark partition of its own
    O3. each Spark partition is sorted

An internal topic has records of several writers, each of which wrote all its records before the
next began, or in between: there the largest time of writing of the writer counts
(`engine.operators.watermarks`). Rows of files have their place: event time, path, row. In both
cases a live task would see other offsets, so these are removed, and `spark_rows.runs` counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.engine.codegen.compiler import compile_part, compile_source
from eosframework.engine.operators.watermarks import written_time
from eosframework.engine.task.input_queues import TimeOf
from eosframework.records import TopicPartition
from eosframework.spark.job.stages import writers_of
from eosframework.spark.session.executors import (
    BatchFunction,
    RecordBatch,
    extended,
    map_batches,
    unpack,
)
from eosframework.spark.session.spark_rows import ROW_SCHEMA, OffsetCounter, runs_of
from eosframework.topology.graph.graph import Graph
from eosframework.transactions.ports import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACED_SCHEMA = f"{ROW_SCHEMA}, order_time bigint, writer string"
"""Rows with their sort key: `order_time`, topic, writer (for a file its path) and offset (for a
file the row)."""

_TRIED_FOR_EACH = 20
"""Candidates hashed for each task at once; with so many, each task nearly always gets one."""


def in_task_order(
    spark: SparkSession,
    frames: Sequence[DataFrame],
    graph: bytes,
    sub_topology: str,
    partitions: int,
) -> DataFrame:
    """Return the rows of a stage: one Spark partition for each task, in the task's order.

    Args:
        spark: a session of the backfill.
        frames: rows of each source topic, from `spark_rows` or with their places.
        graph: pickled.
        sub_topology: its sources.
        partitions: number of its tasks.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.functions import array, array_position, col, element_at, lit, when

    place = adding_sort_keys(graph, sub_topology)
    turn = array_position(array(*map(lit, topics_in_turn(graph, sub_topology))), col("topic"))
    rows = reduce(
        DataFrame.unionByName,
        [f if "order_time" in f.columns else map_batches(f, place, PLACED_SCHEMA) for f in frames],
    )
    slots = element_at(array(*map(lit, task_slots(spark, partitions))), col("partition") + 1)
    return (
        rows.repartition(partitions, slots)
        .sortWithinPartitions("partition", "order_time", turn, "writer", "offset")
        .withColumn("offset", when(col("writer").isNull(), col("offset")))
        .drop("order_time", "writer")
    )


def adding_sort_keys(graph: bytes, sub_topology: str) -> BatchFunction:
    """Return the function that adds sort keys to rows of Kafka partitions, each in order (O1)."""

    def place(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        sort_keys = SortKeys(unpack(graph), sub_topology)
        for batch in batches:
            messages = (m for _, some in runs_of(batch, OffsetCounter()) for m in some)
            found = [sort_keys.of(message) for message in messages]
            times, writers = [time for time, _ in found], [writer for _, writer in found]
            yield extended(batch, {"order_time": ("int64", times), "writer": ("string", writers)})

    return place


def topics_in_turn(graph: bytes, sub_topology: str) -> list[str]:
    """Return source topics in their order among records of the same time."""
    compiled = compile_part(unpack(graph).sub_topology(sub_topology))
    return [p.topic for p in compiled.in_turn(TopicPartition(t, 0) for t in compiled.sources)]


class SortKeys:
    """Sort keys of messages.

    Args:
        graph: of the application.
        sub_topology: its sources.
    """

    def __init__(self, graph: Graph, sub_topology: str) -> None:
        sources = graph.sub_topology(sub_topology).sources
        self._time_of: dict[str, TimeOf] = {s.topic: compile_source(s).time_of for s in sources}
        self._own = writers_of(graph).keys()
        self._latest: dict[tuple[str, int, str | None], int] = {}

    def of(self, message: Message) -> tuple[int, str | None]:
        """Return the largest event time up to a message, and its writer.

        Messages of a partition must come in offset order.
        """
        topic = message.topic()
        writer = _writer_of(message) if topic in self._own else None
        time, writer_key = self._time_of[topic](message), (topic, message.partition(), writer)
        if writer is not None:
            time = written_time(message.headers(), time)
        latest = self._latest[writer_key] = max(time, self._latest.get(writer_key, time))
        return latest, writer


def _writer_of(message: Message) -> str:
    """Return the backfill task that wrote a record; empty for other records."""
    headers = message.headers() or ()
    return next(
        (v.decode(errors="replace") for name, v in headers if name == WRITER_HEADER and v), ""
    )


def task_slots(spark: SparkSession, partitions: int) -> list[int]:
    """Return for each task a number that Spark's shuffle hashes to the task's partition.

    With the tasks' own numbers some partitions would get several tasks, others none.
    """
    tried = _TRIED_FOR_EACH * partitions
    while True:
        hashed = spark.range(0, tried, 1, 1).selectExpr(
            f"pmod(hash(CAST(id AS int)), {partitions})", "CAST(id AS int)"
        )
        found: dict[int, int] = {row[0]: row[1] for row in hashed.collect()}
        if len(found) == partitions:
            return [found[task] for task in range(partitions)]
        tried *= 4
