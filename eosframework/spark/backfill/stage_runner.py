"""Runs a started job: a Spark job for each stage, and the work after its tasks.

    ST0. end transactions that attempts of a dead driver left open on the control topic
    ST1. one stage after the other: an attempt for each task, which reads the log itself, or gets
        rows sorted by Spark
    ST2. in the latter case, complete tasks without rows, so that each task has a position
    ST3. record the ends of internal topics, once all tasks that write them are complete
    ST4. write rows to their tables

All state is in the control topic. The driver may be killed at any time, and the next start resumes.
Spark's calls run on a separate thread, so that the main one displays progress and can be
interrupted.

The stage of the table sinks: writes a job's rows by claims, as live table writers do.
It runs last, over the application's row topics as filled by the other stages, and over the job's
ranges of topics that feed tables directly. Positions are stored in the database, and table writers
resume from them. If table writers already run, the rows are left to them.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from eosframework.application.journal import DECIDED_SECONDS, KafkaJournal
from eosframework.config import Settings
from eosframework.errors import PositionLost, RunError, TransactionError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.kafka.consumer.settled import settled_ends
from eosframework.kafka.worker_clients import producers
from eosframework.postgres.tables.table_ports import RowMaker
from eosframework.records import TopicPartition, partitions_of
from eosframework.spark.backfill.file_rows import failed_read, file_rows
from eosframework.spark.backfill.job_start import StartedJob
from eosframework.spark.executor.attempt_context import Run, TaskSpec
from eosframework.spark.executor.functions import (
    RESULT_SCHEMA,
    attempts,
    attempts_over_log,
    completions,
    run_numbered,
)
from eosframework.spark.executor.table_attempt import (
    PATIENCE_SECONDS,
    Pace,
    TableAttempt,
    refuse_gap,
)
from eosframework.spark.job.job_entry import (
    JobState,
    OffsetRange,
    decided_job,
    ends_key,
    settled_job,
    tables_key,
    task_of,
)
from eosframework.spark.job.stages import Stage, writers_of
from eosframework.spark.session.executors import failure_of, map_batches, pack, reason_of, unpack
from eosframework.spark.session.ordering import in_task_order
from eosframework.spark.session.spark_rows import kafka_rows
from eosframework.topology.graph.graph import Graph
from eosframework.transactions.producing import fence
from eosframework.txnid import TransactionalId, tables_group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    started.journal.write({tables_key(state.job.name): done})


def _write_tables(
    spark: SparkSession,
    started: StartedJob,
    state: JobState,
    run_watched: Callable[[Callable[[], Any]], None],
) -> None:
    graph = started.graph
    ranges = _rows_left(started, state)
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
        run_watched(partitions.map(_table_attempts(spec)).collect)


def _table_attempts(spec: TableTaskSpec) -> Callable[[TopicPartition], int]:
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
    from eosframework.postgres.database import Database
    from eosframework.postgres.database.tables.table_sink import PostgresRowStore, seen_position

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


def _rows_left(started: StartedJob, state: JobState) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges missing in the tables; later, a claim determines them exactly.

    Raises:
        PositionLost: some of their records were deleted from the log.
        RunError: the tables lack records before a range.
    """
    wanted = _table_ranges(started.graph, state, started.facts.partitions, started.admin)
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


def _table_ranges(
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
    from eosframework.postgres.database import Database
    from eosframework.postgres.database.tables.table_sink import stored_positions

    name = started.graph.application
    database = Database(started.settings.database, application_name=f"eosframework {name} backfill")
    return {found.partition: found.next_offset for found in stored_positions(database, name)}


OnProgress = Callable[[JobState], object]
"""Called with the job's progress about once a second."""

_LOOK_SECONDS = 1.0


def run_stages(
    spark: SparkSession, started: StartedJob, on_progress: OnProgress, options: Mapping[str, str]
) -> JobState:
    """Run the rest of a job and return it complete.

    Args:
        spark: a session of the backfill.
        started: the job.
        on_progress: called with its progress.
        options: for Spark's Kafka client.

    Raises:
        EosError: the error of an attempt, or of the brokers.
        RunError: Spark gave up; its message is included.
    """
    run = _Run(spark, started, on_progress, options)
    events = structlog.get_logger()
    job = started.state.job
    end_leftovers(started.journal, job.application, job.name, started.settings)
    for stage in started.stages:
        state = _state(started)
        if not state.is_complete(stage.name, stage.partitions):
            events.info("backfill_stage", job=state.job.name, stage=stage.name)
            run.stage(state, stage)
        _fix_ends(started)
    state = _state(started)
    if started.graph.table_sinks:
        run_tables(spark, started, state, run.watched)
        state = _state(started)
    return state


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a job; see `run_stages`."""

    spark: SparkSession
    started: StartedJob
    on_progress: OnProgress
    options: Mapping[str, str]

    def stage(self, state: JobState, stage: Stage) -> None:
        """Run a stage: ST1, then ST2."""
        spec = _task_spec(self.started, state, stage)
        if stage.reads_log:
            left = state.incomplete(stage.name, stage.partitions)
            _refuse_lost(self.started, _left(state, stage, left))
            self._tasks(left, attempts_over_log(spec))
            return
        frames = [self._topic_rows(state, stage, topic) for topic in stage.topics]
        rows = in_task_order(self.spark, frames, spec.graph, stage.name, stage.partitions)
        results = map_batches(rows, attempts(spec), RESULT_SCHEMA)
        self.watched(results.collect)
        if left := _state(self.started).incomplete(stage.name, stage.partitions):
            self._tasks(left, completions(spec))

    def _tasks(self, tasks: Sequence[int], function: Callable[[int], int]) -> None:
        numbers = self.spark.sparkContext.parallelize(tasks, len(tasks))
        self.watched(numbers.map(function).collect)

    def _topic_rows(self, state: JobState, stage: Stage, topic: str) -> DataFrame:
        if topic in stage.files:
            source = next(source for source in stage.part.sources if source.topic == topic)
            return file_rows(self.spark, topic, state.job.files[topic], source)
        is_own = topic in stage.own_topics
        ranges = _own_ranges(state, topic) if is_own else state.job.ranges[topic]
        by_partition = {TopicPartition(topic, number): one for number, one in enumerate(ranges)}
        _refuse_lost(self.started, by_partition)
        return kafka_rows(self.spark, self.started.settings.kafka, by_partition, self.options)

    def watched(self, action: Callable[[], Any]) -> None:
        """Run a Spark action on a thread, and report the job's progress meanwhile.

        Raises:
            EosError: the error of an attempt.
            RunError: any other failure of Spark.
            KeyboardInterrupt: the action was cancelled.
        """
        from pyspark import InheritableThread

        failures: list[BaseException] = []

        def act() -> None:
            try:
                action()
            except BaseException as error:
                failures.append(error)

        # Ctrl-C interrupts this thread in `join`, not the one that waits for Spark; this one then
        # cancels the job group. The other inherits the group only if it is set before it starts.
        name = self.started.state.job.name
        group = f"eosframework backfill {name}"
        self.spark.sparkContext.setJobGroup(group, group, interruptOnCancel=False)
        thread = InheritableThread(target=act, name="spark-action", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_LOOK_SECONDS)
                if (state := decided_job(self.started.journal, name)) is not None:
                    self.on_progress(state)
        except BaseException:
            self.spark.sparkContext.cancelJobGroup(group)
            thread.join(self.started.settings.worker.stop_deadline_seconds)
            raise
        if failures:
            error = failures[0]
            raise (
                failure_of(error)
                or failed_read(error)
                or RunError(
                    f"Spark gave job {self.started.state.job.name!r} up: {reason_of(error)}; start "
                    f"it again to resume"
                )
            ) from error


def _state(started: StartedJob) -> JobState:
    state = settled_job(started.journal, started.state.job.name)
    if state is None:
        raise RunError(
            f"job {started.state.job.name!r} is missing in the control topic of "
            f"application {started.graph.application!r}, which was deleted meanwhile; its output "
            f"stays, and it cannot resume"
        )
    return state


def _task_spec(started: StartedJob, state: JobState, stage: Stage) -> TaskSpec:
    in_log = [t for t in stage.topics if t not in stage.own_topics and t not in stage.files]
    ranges = {
        TopicPartition(topic, number): one
        for topic in in_log
        for number, one in enumerate(state.job.ranges[topic])
    }
    others = dict.fromkeys((*stage.own_topics, *stage.files), stage.partitions)
    return TaskSpec(
        graph=pack(started.graph),
        settings=started.settings,
        job=state.job.name,
        sub_topology=stage.name,
        partitions=stage.partitions,
        starts={
            **{p: one.first for p, one in ranges.items()},
            **dict.fromkeys(partitions_of(others), 0),
        },
        ends={p: one.end for p, one in ranges.items()},
        facts=started.facts,
        own_topics=frozenset(writers_of(started.graph)),
        run=uuid.uuid4().hex[:8],
        since=started.journal.written_end(),
    )


def _left(state: JobState, stage: Stage, tasks: Sequence[int]) -> dict[TopicPartition, OffsetRange]:
    """Return the remaining ranges of some tasks."""
    left: dict[TopicPartition, OffsetRange] = {}
    for topic in stage.topics:
        for number, one in enumerate(state.job.ranges[topic]):
            if number in tasks:
                partition = TopicPartition(topic, number)
                progress = state.tasks.get((stage.name, number))
                first = one.first if progress is None else progress.by_partition()[partition]
                left[partition] = OffsetRange(first=first, end=one.end)
    return left


def _refuse_lost(started: StartedJob, ranges: Mapping[TopicPartition, OffsetRange]) -> None:
    """Raise if records of the ranges were deleted.

    Raises:
        PositionLost: retention was faster.
    """
    log = started.admin.log_bounds(list(ranges))
    for partition, one in ranges.items():
        begin = log[partition][0]
        if one.first < one.end and one.first < begin:
            raise PositionLost(
                f"{partition}: the next offset of job {started.state.job.name!r} is {one.first}, "
                f"and the log begins at {begin} by now: retention deleted the records between "
                f"them, so the job cannot be completed. Let the topic keep its records for longer "
                f"(retention.ms), and start another job; if the application is stateful, under "
                f"another application name"
            )


def _own_ranges(state: JobState, topic: str) -> list[OffsetRange]:
    bounds = zip(state.job.own_starts[topic], state.ends[topic], strict=True)
    return [OffsetRange(first=first, end=end) for first, end in bounds]


def _fix_ends(started: StartedJob) -> None:
    """Record the ends of internal topics once all their writers are complete (ST3).

    They get no more records: the application has no workers, and the last attempt's init of a
    task's id ended the transactions of zombies.
    """
    state = _state(started)
    tasks = {stage.name: stage.partitions for stage in started.stages}
    ended = [
        topic
        for topic, writers in writers_of(started.graph).items()
        if topic not in state.ends and all(state.is_complete(w, tasks[w]) for w in writers)
    ]
    partitions = partitions_of({topic: started.facts.partitions[topic] for topic in ended})
    wait_seconds = started.settings.kafka.request_timeout_seconds
    ends = settled_ends(started.admin, partitions, wait_seconds)
    entries: dict[str, Any] = {
        ends_key(state.job.name, topic): [ends[p] for p in partitions if p.topic == topic]
        for topic in ended
    }
    started.journal.write(entries)


def end_leftovers(
    journal: KafkaJournal,
    application: str,
    name: str,
    settings: Settings,
    decided_seconds: float = DECIDED_SECONDS,
) -> list[str]:
    """End open transactions of a job's tasks on the control topic, and return their ids (ST0).

    Their ids are initialized, as the following attempts would do anyway. An attempt ends the
    leftovers of its own task only, and would wait for those of other tasks, which may run much
    later.

    Args:
        journal: of the application.
        application: owner of the job.
        name: of the job.
        settings: connection to the cluster.
        decided_seconds: wait for open transactions.

    Raises:
        ClusterUnreachable: the cluster did not answer.
    """
    # 1. an attempt of a driver that is still alive commits here  2. its id is initialized. Its next
    # transaction is fenced, Spark retries its task, and that resumes at the committed position.
    tasks = {task for key in journal.leftovers(decided_seconds) if (task := task_of(name, key))}
    ids = [
        str(TransactionalId.backfill(application, f"{name}.{sub_topology}", partition))
        for sub_topology, partition in sorted(tasks)
    ]
    if not ids:
        return []
    events = structlog.get_logger("eosframework.backfill").bind(job=name)
    events.info("leftovers_ended", transactional_ids=ids)
    outputs = producers(settings)
    try:
        fence(outputs, ids)
    except TransactionError as error:
        # The stages then wait until the brokers end them.
        events.warning("leftovers_not_ended", error=str(error))
    finally:
        outputs.stop()
    return ids
