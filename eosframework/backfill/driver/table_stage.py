"""The stage of the table sinks: writes a job's rows by claims, as live table writers do.

It runs last, over the application's row topics as filled by the other stages, and over the job's
ranges of topics that feed tables directly. Positions are stored in the database, and table writers
resume from them. If table writers already run, the rows are left to them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from eosframework.backfill.driver.job_start import StartedJob
from eosframework.backfill.executor.chunk import Run
from eosframework.backfill.executor.functions import run_numbered
from eosframework.backfill.executor.table_attempt import (
    PATIENCE_SECONDS,
    Pace,
    TableAttempt,
    refuse_gap,
)
from eosframework.backfill.job.job_entry import OffsetRange, tables_key
from eosframework.backfill.spark.pickling import pack, unpack
from eosframework.config import Settings
from eosframework.errors import PositionLost
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.records import TopicPartition, partitions_of
from eosframework.tables.row_conversion import RowMaker
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import tables_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eosframework.backfill.job.job_entry import JobState

Ranges = Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True, slots=True)
class TableTaskSpec:
    """The parameters of this stage's tasks, sent to the executors.

    Args:
        graph: of the application, pickled.
        topic_ids: of the table sinks' topics.
        ranges: all ranges, without the part already in the tables.
    """

    graph: bytes
    settings: Settings
    topic_ids: Mapping[str, str]
    ranges: Ranges


def run_tables(
    spark: SparkSession,
    started: StartedJob,
    state: JobState,
    run_watched: Callable[[Callable[[], Any]], None],
) -> None:
    """Write the rest of a job's rows to their tables.

    Args:
        spark: a session of the backfill.
        started: the job.
        state: all its other stages are complete.
        run_watched: runs a Spark action.

    Raises:
        RecordFailed: a record yields no row, or the database refuses it, and the policy is to fail.
        RunError: rows were deleted, or precede the range; or the database stays unavailable.
        DatabaseUnusable: the database cannot be queried.
    """
    graph = started.graph
    if not graph.table_sinks or state.tables_at is not None:
        return
    events = structlog.get_logger("eosframework.backfill").bind(application=graph.application)
    group = tables_group(graph.application)
    if members := started.admin.describe_group(group).client_ids:
        events.info("tables_left_to_workers", group=group, workers=len(members))
    else:
        _write_tables(spark, started, state, run_watched)
    done = {"at": round(time.time() * 1000), "workers": len(members)}
    started.log.write({tables_key(state.job.name): done})


def _write_tables(
    spark: SparkSession,
    started: StartedJob,
    state: JobState,
    run_watched: Callable[[Callable[[], Any]], None],
) -> None:
    graph = started.graph
    ranges = _left(started, state)
    spec = TableTaskSpec(
        pack(graph),
        started.settings,
        {p.topic: started.facts.topics[p.topic].topic_id for p in graph.table_sinks},
        ranges,
    )
    structlog.get_logger("eosframework.backfill").info(
        "backfill_stage", job=state.job.name, stage="tables", partitions=len(ranges)
    )
    if ranges:
        partitions = spark.sparkContext.parallelize(sorted(ranges), len(ranges))
        run_watched(partitions.map(table_attempts(spec)).collect)


def table_attempts(spec: TableTaskSpec) -> Callable[[TopicPartition], int]:
    """Return the function for executors: it writes a partition's rows to tables and counts them."""

    def run(partition: TopicPartition) -> int:
        return run_numbered(partial(_write_range, spec, TopicPartition(*partition)))

    return run


def _write_range(spec: TableTaskSpec, partition: TopicPartition, attempt_number: int) -> int:
    range_ = spec.ranges[partition]
    rows = read_ranges(
        spec.settings.kafka,
        {partition: (range_.first, range_.end)},
        patience_seconds=PATIENCE_SECONDS,
    )
    with closing(rows):
        return write_partition(spec, partition, rows, attempt_number)


def write_partition(
    spec: TableTaskSpec, partition: TopicPartition, rows: Iterable[Run], attempt_number: int
) -> int:
    """Write the rows of one partition to tables; see `TableAttempt.run`."""
    from eosframework.postgres import Database
    from eosframework.postgres.tables.table_positions import seen_position
    from eosframework.postgres.tables.table_sink import PostgresRowStore

    graph = unpack(spec.graph)
    name = graph.application
    database = Database(spec.settings.database, application_name=_session_name(name, partition))
    store = PostgresRowStore(database, name, spec.topic_ids)
    range_ = spec.ranges[partition]
    attempt = TableAttempt(
        partition,
        range_.first,
        range_.end,
        RowMaker(next(p for p in graph.table_sinks if p.topic == partition.topic)),
        store,
        Pace.of(spec.settings),
        partial(seen_position, database, name, partition),
    )
    try:
        return attempt.run(rows, attempt_number)
    finally:
        store.close()


def _session_name(application: str, partition: TopicPartition) -> str:
    """Return the session name shared by attempts of one partition; longer names would be cut."""
    task = f"{application}/{partition}"
    return f"eosframework backfill {hashlib.sha256(task.encode()).hexdigest()[:16]}"


def _left(started: StartedJob, state: JobState) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges missing in the tables; later, a claim determines them exactly.

    Raises:
        PositionLost: some of their records were deleted from the log.
        RunError: the tables lack records before a range.
    """
    wanted = table_ranges(started.graph, state, started.facts.partitions, started.admin)
    stored = _stored(started)
    left: dict[TopicPartition, OffsetRange] = {}
    log = started.admin.log_bounds(list(wanted))
    for partition, range_ in wanted.items():
        position = stored.get(partition)
        if position is None:
            position = range_.first
        elif position >= range_.end:
            continue
        refuse_gap(partition, position, range_.first)
        if position < log[partition][0] and position < range_.end:
            raise PositionLost(
                f"{partition}: the tables have the rows before offset {position}, and the log "
                f"begins at {log[partition][0]} by now: retention deleted the records between "
                f"them. To resume without them: eosframework positions set APP --tables "
                f"'{partition}={log[partition][0]}'"
            )
        left[partition] = OffsetRange(first=position, end=range_.end)
    return left


def table_ranges(
    graph: Graph, state: JobState, partitions: Mapping[str, int], admin: ClusterAdmin
) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges for tables: those of the job, and all of the application's row topics.

    Args:
        graph: of the application.
        state: of the job.
        partitions: number of partitions by topic.
        admin: admin client of the cluster.
    """
    ranges: dict[TopicPartition, OffsetRange] = {}
    own: list[TopicPartition] = []
    for table_sink in graph.table_sinks:
        if table_sink.sub_topology is None:
            for number, range_ in enumerate(state.job.ranges[table_sink.topic]):
                ranges[TopicPartition(table_sink.topic, number)] = range_
        else:
            own += partitions_of({table_sink.topic: partitions[table_sink.topic]})
    bounds = admin.log_bounds(own)
    return ranges | {p: OffsetRange(first=first, end=end) for p, (first, end) in bounds.items()}


def _stored(started: StartedJob) -> dict[TopicPartition, int | None]:
    from eosframework.postgres import Database
    from eosframework.postgres.tables.table_positions import stored_positions

    name = started.graph.application
    database = Database(started.settings.database, application_name=f"eosframework {name} backfill")
    return {found.partition: found.next_offset for found in stored_positions(database, name)}
