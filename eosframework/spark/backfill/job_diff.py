"""Comparison of a job's suffixed output with the live topics and tables.

The range of the comparison is one of event times: from the earliest to the latest that the job's
tasks have seen. Where a source takes times from a function, the earliest is that of the job's
output. Live topics may have records with such times after the range; they show as differences.
Windows cut by the range, because they began before it or were open at its end, are counted
separately if they differ. The caller may narrow the times and the partitions. Tables have neither:
they are compared whole, or by a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from eosframework.application.journal import KafkaJournal
from eosframework.config import Settings
from eosframework.engine.task.offsets import Progress
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.serialization.moments import moment_text
from eosframework.spark.backfill.cutover import incomplete
from eosframework.spark.backfill.topic_diff import (
    ComparedTopics,
    DiffOptions,
    Ranges,
    Rows,
    TimeRange,
    compare_topics,
    comparisons,
    earliest,
    whole,
)
from eosframework.spark.job.job_entry import Job, JobState, settled_job
from eosframework.spark.session.spark_rows import kafka_rows
from eosframework.topology.renaming import renamed, suffixed, suffixed_table, written_topics
from eosframework.topology.resolve.resolve import resolve
from eosframework.topology.spec.loaded import LoadedApp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eosframework.postgres.database.tables.table_comparison import ComparedTables


@dataclass(frozen=True, slots=True)
class Diff:
    """The result of a comparison.

    Args:
        times: the range.
        topics: by name of the live topic.
        tables: by name of the live table.
        notes: outputs that were not compared, with the reason.
    """

    job: Job
    times: TimeRange
    topics: Mapping[str, ComparedTopics]
    tables: Mapping[str, ComparedTables]
    notes: Sequence[str]

    @property
    def is_equal(self) -> bool:
        """True without differences."""
        return not any(sum(one.only) for one in (*self.topics.values(), *self.tables.values()))

    @property
    def is_empty(self) -> bool:
        """True if there was nothing to compare."""
        counts = [sum(one.records) for one in self.topics.values()]
        return not sum((*counts, *(sum(one.rows) for one in self.tables.values())))


def compare(
    spark: Callable[[], SparkSession],
    app: LoadedApp,
    settings: Settings,
    name: str,
    suffix: str,
    how: DiffOptions,
    *,
    where: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Diff:
    """Compare a complete job's output with the live one.

    Args:
        spark: returns a session of the backfill; called only if there are topics to compare.
        app: the live topology.
        settings: of both.
        name: of the job.
        suffix: of the job.
        how: options for topics.
        where: a condition in SQL on the rows of tables.
        options: for Spark's Kafka client.

    Raises:
        ConfigurationError: the job does not exist or is incomplete, a topic or a partition does not
            exist, or the job processed no event times of the wanted ones.
        DatabaseRefused: a table does not exist or may not be read.
    """
    admin = ClusterAdmin(settings.kafka)
    state = _job(app, settings, name, suffix, admin)
    chosen = comparisons(app.spec, how.topics, how.by)
    topics, notes = _topics(app, suffix, admin)
    notes += [c.note for topic, c in chosen.items() if topic in topics and c.note is not None]
    times, compared = TimeRange(), dict[str, ComparedTopics]()
    if topics:
        session = spark()
        rows = partial(kafka_rows, session, settings.kafka, options=options)
        pairs = {
            topic: (
                whole(topic, wanted, admin),
                whole(suffixed(topic, suffix), suffixed_wanted, admin),
            )
            for topic, (wanted, suffixed_wanted) in _partitions(topics, how.partitions).items()
        }
        processed = _times(state, rows, [suffixed_side for _, suffixed_side in pairs.values()])
        times = processed.narrowed(how.within)
        _refuse_no_times(name, processed, times)
        compared = {
            topic: compare_topics(session, rows, *pair, times, chosen[topic], how)
            for topic, pair in pairs.items()
        }
    tables = _tables(app, suffix, settings, where, how.limit)
    if tables and how.is_narrowed and where is None:
        notes.append("tables are compared whole; --where compares a part of their rows")
    return Diff(state.job, times, compared, tables, [*notes, *_unnamed(app)])


def _job(
    app: LoadedApp, settings: Settings, name: str, suffix: str, admin: ClusterAdmin
) -> JobState:
    suffixed_side = resolve(renamed(app, suffix))
    state = settled_job(KafkaJournal(suffixed_side.application, settings.kafka, admin), name)
    if state is None:
        raise ConfigurationError(
            f"application {app.spec.application!r} has no backfill job {name!r} with suffix "
            f"{suffix!r}; `eosframework backfill status APP --suffix {suffix}` lists those that "
            f"there are"
        )
    if missing := next(incomplete(suffixed_side, state), None):
        raise ConfigurationError(
            f"job {name!r} is not complete: {missing}; run it to its end before it is compared"
        )
    return state


@contextmanager
def lazy_session(
    master: str | None, options: Mapping[str, str]
) -> Generator[Callable[[], SparkSession]]:
    """Yield a function that starts Spark when first called; Spark stops after the block."""
    from eosframework.spark.session.spark_session import quiet_bridge, spark_session, stop_session

    quiet_bridge()
    started: list[SparkSession] = []

    def session() -> SparkSession:
        if not started:
            started.append(spark_session(master, options))
        return started[0]

    try:
        yield session
    finally:
        for one in started:
            stop_session(one)


def _topics(
    app: LoadedApp, suffix: str, admin: ClusterAdmin
) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Return the topics to compare, with the numbers of partitions of both sides."""
    names = sorted(written_topics(app.spec))
    facts = admin.describe_topics([*names, *(suffixed(name, suffix) for name in names)])
    kinds = admin.topic_setting(facts, "message.timestamp.type")
    counts: dict[str, tuple[int, int]] = {}
    notes: list[str] = []
    for name in names:
        pair = name, suffixed(name, suffix)
        for topic in pair:
            if not facts[topic].exists:
                raise ConfigurationError(
                    f"topic {topic!r} does not exist, so there is nothing to compare with; was "
                    f"the job run with suffix {suffix!r}?"
                )
        if "LogAppendTime" in {kinds[topic] for topic in pair}:
            notes.append(
                f"topic {name} is not compared: with message.timestamp.type=LogAppendTime its "
                f"records have the time of writing instead of event times"
            )
        else:
            counts[name] = facts[pair[0]].partitions, facts[pair[1]].partitions
    return counts, notes


def _partitions(
    topics: Mapping[str, tuple[int, int]], wanted: frozenset[int]
) -> dict[str, tuple[list[int], list[int]]]:
    """Return the partitions of both sides of each topic that are compared.

    Raises:
        ConfigurationError: a topic has no such partition, or its sides place keys differently.
    """
    for topic, (live, suffixed_side) in topics.items():
        if wanted and live != suffixed_side:
            raise ConfigurationError(
                f"topic {topic} has {live} partitions and that of the job {suffixed_side}, so a "
                f"key is in another partition of each; compare without --partition"
            )
        if missing := sorted(number for number in wanted if number >= live):
            raise ConfigurationError(
                f"--partition {missing[0]}: topic {topic} has only partitions 0 to {live - 1}"
            )
    return {
        topic: (sorted(wanted or range(live)), sorted(wanted or range(suffixed_side)))
        for topic, (live, suffixed_side) in topics.items()
    }


def _refuse_no_times(job: str, processed: TimeRange, times: TimeRange) -> None:
    if times.first is None or times.last is None or times.first <= times.last:
        return
    raise ConfigurationError(
        f"job {job!r} processed event times from {moment_text(processed.first)} to "
        f"{moment_text(processed.last)}, none of which are within --from and --to"
    )


def _unnamed(app: LoadedApp) -> list[str]:
    return [
        f"topics chosen by {sink.topic_from} of stream {name} are not compared: it lists none"
        for name, stream in app.spec.streams.items()
        for _, sink in stream.sinks
        if sink.topic_from is not None and not sink.topics
    ]


def _times(state: JobState, rows: Rows, suffixed_side: Sequence[Ranges]) -> TimeRange:
    """Return the event times of the job's range."""
    tasks = [progress for progress in state.tasks.values() if progress.records]
    last = max((Progress.parse(progress.metadata).stream_time for progress in tasks), default=None)
    firsts = [progress.first_time for progress in tasks]
    known = [first for first in firsts if first is not None]
    if len(known) < len(firsts):
        known += [time for ranges in suffixed_side if (time := earliest(rows, ranges)) is not None]
    is_cut = bool(state.job.request.get("start"))
    return TimeRange(min(known, default=None), last, is_cut)


def _tables(
    app: LoadedApp, suffix: str, settings: Settings, where: str | None, limit: int
) -> dict[str, ComparedTables]:
    tables = dict.fromkeys(
        table.table for stream in app.spec.streams.values() for _, table in stream.tables
    )
    if not tables:
        return {}
    # Imported here: without table sinks no database driver is needed.
    from eosframework.postgres.database import Database
    from eosframework.postgres.database.tables.table_comparison import compare_tables

    database = Database(settings.database, application_name="eosframework backfill diff")
    database.require()
    compared = partial(compare_tables, database, where=where, limit=limit)
    return {table: compared(table, suffixed_table(table, suffix)) for table in tables}
