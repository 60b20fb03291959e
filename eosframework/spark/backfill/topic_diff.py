"""Two topics compared by Spark: record by record, or by the last value of each key and window.

The unit of comparison for each topic, derived from the topology.
records          every record has an equal one on the other side
last             the last value of each key: of a result that is updated, its final state counts
last of windows  the same by key and window
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.engine.task.receipts import HEADER_RECEIPT
from eosframework.engine.task.transaction_receipts import HEADER_TRANSACTION
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.records import TopicPartition
from eosframework.serialization.references import closest
from eosframework.serialization.serdes import JSON, WINDOW
from eosframework.spark.job.job_entry import OffsetRange
from eosframework.topology.lowering.parts import Changes, known_changes
from eosframework.topology.renaming import written_topics
from eosframework.topology.spec.keyed_spec import Window, WindowKind
from eosframework.topology.spec.topology_spec import SinkSpec, TopologySpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


class CompareBy(StrEnum):
    """The unit of comparison of a topic."""

    RECORDS = "records"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a topic.

    Args:
        window: values are results of such windows, as `WindowResult` is written; None: they are
            not.
        note: reason for an unexpected choice; None: there is none.
    """

    by: CompareBy = CompareBy.RECORDS
    window: Window | None = None
    note: str | None = None

    @property
    def label(self) -> str:
        """Description for people."""
        if self.by is CompareBy.RECORDS:
            return "record by record"
        return f"last value of each key{'' if self.window is None else ' and window'}"

    @property
    def reach_ms(self) -> int:
        """Distance at which records outside a window's bounds may still extend it, for sessions."""
        is_session = self.window is not None and self.window.kind is WindowKind.SESSION
        return self.window.size_ms if self.window is not None and is_session else 0

    @property
    def closes_after_ms(self) -> int:
        """Time after its end at which a window closes."""
        return self.reach_ms + (0 if self.window is None else self.window.grace_ms)


def comparisons(
    spec: TopologySpec, given: Mapping[str, CompareBy], by: CompareBy | None = None
) -> dict[str, Comparison]:
    """Return the comparison of each topic that a topology writes and names.

    Args:
        spec: of a topology without errors.
        given: the user's choices, by topic.
        by: the user's choice for all others; None: the fitting one.

    Raises:
        ConfigurationError: a choice names a topic that the topology does not write.
    """
    topics = written_topics(spec)
    for topic in given:
        if topic not in topics:
            raise ConfigurationError(
                f"{topic!r} is not a topic that the topology writes and names; it writes "
                f"{', '.join(sorted(topics))}{closest(topic, topics)}"
            )
    chosen: dict[str, Comparison] = {}
    for topic in topics:
        fitting = _fitting(spec, topic)
        wanted = given.get(topic, by)
        chosen[topic] = fitting if wanted is None else Comparison(wanted, fitting.window)
    return chosen


def _fitting(spec: TopologySpec, topic: str) -> Comparison:
    ends = known_changes(spec).ends
    writers = [
        (ends[name], sink)
        for name, stream in spec.streams.items()
        for _, sink in stream.sinks
        if topic == sink.topic or topic in sink.topics
    ]
    if len(writers) != 1:  # late records, dead letters or a mixture do not replace each other
        return Comparison()
    changes, sink = writers[0]
    if changes is None:
        return Comparison()
    if changes.window is not None:
        return _of_windows(topic, changes, changes.window, sink)
    is_by_key = changes.moved is None and not changes.is_shaped
    return Comparison(CompareBy.LAST if is_by_key else CompareBy.RECORDS)


def _of_windows(topic: str, changes: Changes, window: Window, sink: SinkSpec) -> Comparison:
    if not window.is_timed:  # Each result is one of its own, and no range of times cuts it.
        return Comparison()
    is_readable = not changes.is_shaped and sink.value in (None, WINDOW.name, JSON.name)
    if is_readable:
        # After a new key, results of several keys may share one.
        is_by_key = changes.moved is None and not changes.is_final
        return Comparison(CompareBy.LAST if is_by_key else CompareBy.RECORDS, window)
    if changes.is_final:
        return Comparison()
    return Comparison(
        note=f"topic {topic} is compared record by record, with every update: its values do not "
        f"identify their window of {changes.of}. Updates come in the order of the records, "
        f"which may differ between two runs; to compare the last one of each key only: "
        f"--compare {topic}=last"
    )


Ranges = Mapping[TopicPartition, OffsetRange]
Rows = Callable[[Ranges], "DataFrame"]
"""Reads ranges of topics."""

_OWN_HEADERS = f"'{WRITER_HEADER}', '{HEADER_RECEIPT}', '{HEADER_TRANSACTION}'"
_KEPT_HEADERS = f"filter(headers, h -> h.key NOT IN ({_OWN_HEADERS}))"
_HEADERS = f"CASE WHEN size({_KEPT_HEADERS}) > 0 THEN {_KEPT_HEADERS} END"
_PLACE = "struct(partition, offset, timestamp, value)"
_WINDOW = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Event times in milliseconds since the epoch, both included; None: unbounded.

    Args:
        is_cut: the range excludes records before its first time.
    """

    first: int | None = None
    last: int | None = None
    is_cut: bool = False

    def narrowed(self, within: TimeRange) -> TimeRange:
        """Return the times that are in both ranges."""
        firsts = [first for first in (self.first, within.first) if first is not None]
        lasts = [last for last in (self.last, within.last) if last is not None]
        first = max(firsts, default=None)
        is_cut = self.is_cut if first == self.first else within.is_cut
        return TimeRange(first, min(lasts, default=None), is_cut)


@dataclass(frozen=True, slots=True)
class Place:
    """A record of one side: the first of equal ones, or the last of its key."""

    partition: int
    offset: int
    timestamp: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """Records, or the last record of a key, that differ between the sides.

    Args:
        counts: numbers of live and of suffixed ones.
        live: None: there is none.
        suffixed: the suffixed one; None: there is none.
    """

    key: bytes | None
    counts: tuple[int, int]
    live: Place | None
    suffixed: Place | None


@dataclass(frozen=True, slots=True)
class ComparedTopics:
    """The result for one topic.

    Args:
        records: numbers of records, or keys, of both sides within the range.
        only: numbers of those on one side only.
        differences: the first ones by time.
        how: unit of comparison.
        cut: differing windows that the range cuts: they began before it, or were open at its end.
            They count neither as equal nor as different.
    """

    records: tuple[int, int]
    only: tuple[int, int]
    differences: tuple[TopicDifference, ...]
    how: Comparison = field(default_factory=Comparison)
    cut: int = 0


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """Options for topics.

    Args:
        by: for all topics that `topics` does not name; None: the fitting unit.
        headers: compare headers too, except those of the framework.
        limit: largest number of returned differences.
        topics: by topic.
        within: event times to compare of those that the job processed.
        partitions: numbers of the partitions to compare; empty: all.
    """

    by: CompareBy | None = None
    headers: bool = False
    limit: int = 20
    topics: Mapping[str, CompareBy] = field(default_factory=dict[str, CompareBy])
    within: TimeRange = field(default_factory=TimeRange)
    partitions: frozenset[int] = frozenset()

    @property
    def is_narrowed(self) -> bool:
        """True if only a part of what the job wrote is compared."""
        return bool(self.partitions) or self.within != TimeRange()


def compare_topics(
    spark: SparkSession,
    rows: Rows,
    live: Ranges,
    suffixed: Ranges,
    times: TimeRange,
    comparison: Comparison,
    how: DiffOptions,
) -> ComparedTopics:
    """Compare the records of two topics within a range of event times.

    Args:
        spark: a session of the backfill.
        rows: reads ranges with it.
        live: ranges of the live topic.
        suffixed: ranges of the suffixed topic.
        times: the range of event times.
        comparison: unit of comparison.
        how: further options.
    """
    with _joining_partitions(spark):
        return compare_rows(rows(live), rows(suffixed), times, comparison, how)


def compare_rows(
    live: DataFrame,
    suffixed: DataFrame,
    times: TimeRange,
    comparison: Comparison,
    how: DiffOptions,
) -> ComparedTopics:
    """Compare two sets of records: columns key, value, timestamp, partition, offset, headers."""
    both = _side(live, times, 0).unionByName(_side(suffixed, times, 1))
    by: list[str] = []
    if comparison.window is not None:
        both, by = _with_windows(both), [*_WINDOW]
    is_last = comparison.by is CompareBy.LAST
    grouped = _by_key(both, by) if is_last else _by_record(both, by, headers=how.headers)
    differs = "(only_live > 0 OR only_beside > 0)"
    grouped = grouped.selectExpr("*", f"{differs} AND {_is_cut(times, comparison)} AS is_cut")
    kept = "NOT is_cut"
    sums = {
        "live": "sum(live)",
        "beside": "sum(beside)",
        "only_live": f"sum(only_live) FILTER (WHERE {kept})",
        "only_beside": f"sum(only_beside) FILTER (WHERE {kept})",
        "cut": "count_if(is_cut)",
    }
    totals = grouped.selectExpr(*(f"{sum_} AS {name}" for name, sum_ in sums.items()))
    found_sums = totals.collect()[0].asDict()
    counts = [int(found_sums[name] or 0) for name in sums]
    found: list[Row] = []
    if counts[2] or counts[3]:
        differing = grouped.where(f"{differs} AND {kept}")
        first = "coalesce(live_place.timestamp, beside_place.timestamp)"
        found = differing.selectExpr("*", f"{first} AS at").orderBy("at", "key").take(how.limit)
    return ComparedTopics(
        (counts[0], counts[1]),
        (counts[2], counts[3]),
        tuple(map(_difference, found)),
        comparison,
        counts[4],
    )


def _with_windows(both: DataFrame) -> DataFrame:
    """Return records with their windows, as `serdes.WINDOW` writes them.

    A result without a value deletes the window, as a record without a value deletes a row.
    """
    text = "CAST(value AS STRING)"
    bounds = (
        f"CAST(get_json_object({text}, '$.{bound}') AS BIGINT) AS window_{bound}"
        for bound in ("start", "end")
    )
    is_gone = f"get_json_object({text}, '$.value') IS NULL"
    kept = [column for column in both.columns if column != "value"]
    read = both.selectExpr("*", *bounds)
    value = f"CASE WHEN window_start IS NOT NULL AND {is_gone} THEN NULL ELSE value END AS value"
    return read.selectExpr(*kept, *_WINDOW, value)


def _is_cut(times: TimeRange, comparison: Comparison) -> str:
    """Return the condition that a range of times cuts a window."""
    if comparison.window is None:
        return "false"
    conditions: list[str] = []
    if times.is_cut and times.first is not None:
        conditions.append(f"window_start - {comparison.reach_ms} < {times.first}")
    if times.last is not None:
        conditions.append(f"window_end + {comparison.closes_after_ms} > {times.last}")
    return f"coalesce({' OR '.join(conditions) or 'false'}, false)"


@contextmanager
def _joining_partitions(spark: SparkSession) -> Generator[None]:
    """Let Spark coalesce shuffle partitions, which it must not do in a backfill's own jobs."""
    setting = "spark.sql.adaptive.enabled"
    before = spark.conf.get(setting) or "false"
    spark.conf.set(setting, "true")
    try:
        yield
    finally:
        spark.conf.set(setting, before)


def whole(
    topic: str, partitions: Iterable[int], admin: ClusterAdmin
) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges of all committed records of partitions of a topic."""
    wanted = [TopicPartition(topic, number) for number in partitions]
    return {
        partition: OffsetRange(first=first, end=end)
        for partition, (first, end) in admin.log_bounds(wanted).items()
    }


def earliest(rows: Rows, ranges: Ranges) -> int | None:
    """Return the smallest event time of records; None: there are none."""
    return rows(ranges).selectExpr("min(timestamp)").collect()[0][0]


def _side(rows: DataFrame, times: TimeRange, number: int) -> DataFrame:
    if times.first is not None:
        rows = rows.where(f"timestamp >= {times.first}")
    if times.last is not None:
        rows = rows.where(f"timestamp <= {times.last}")
    return rows.selectExpr("*", f"{number} AS side")


def _by_record(both: DataFrame, window: Sequence[str], *, headers: bool) -> DataFrame:
    """Return, for each distinct record, its number of occurrences and first place on both sides."""
    alike = ["key", "value", "timestamp", *window]
    if headers:
        both = both.selectExpr("*", f"{_HEADERS} AS own_headers")
        alike.append("own_headers")
    grouped = _aggregated(
        both,
        alike,
        "count_if(side = 0) AS live",
        "count_if(side = 1) AS beside",
        f"min(CASE WHEN side = 0 THEN {_PLACE} END) AS live_place",
        f"min(CASE WHEN side = 1 THEN {_PLACE} END) AS beside_place",
    )
    return grouped.selectExpr(
        "key",
        *window,
        "live",
        "beside",
        "greatest(live - beside, 0) AS only_live",
        "greatest(beside - live, 0) AS only_beside",
        "live_place",
        "beside_place",
    )


def _by_key(both: DataFrame, window: Sequence[str]) -> DataFrame:
    """Return the last record of both sides for each key, or each of its windows.

    A deleted key counts as absent.
    """
    last = _aggregated(
        both,
        ["key", *window],
        f"max_by({_PLACE}, struct(offset, partition)) FILTER (WHERE side = 0) AS live_place",
        f"max_by({_PLACE}, struct(offset, partition)) FILTER (WHERE side = 1) AS beside_place",
    ).selectExpr(
        "*",
        "int(live_place.value IS NOT NULL) AS live",
        "int(beside_place.value IS NOT NULL) AS beside",
        "NOT (live_place.value <=> beside_place.value) AS differs",
    )
    return last.selectExpr(
        "key",
        *window,
        "live",
        "beside",
        "CASE WHEN differs THEN live ELSE 0 END AS only_live",
        "CASE WHEN differs THEN beside ELSE 0 END AS only_beside",
        "live_place",
        "beside_place",
    )


def _aggregated(frame: DataFrame, by: list[str], *columns: str) -> DataFrame:
    from pyspark.sql.functions import expr

    return frame.groupBy(*by).agg(*map(expr, columns))


def _difference(row: Row) -> TopicDifference:
    return TopicDifference(
        _bytes(row["key"]),
        (row["live"], row["beside"]),
        _place(row["live_place"]),
        _place(row["beside_place"]),
    )


def _place(found: Any) -> Place | None:
    if found is None:
        return None
    return Place(found["partition"], found["offset"], found["timestamp"], _bytes(found["value"]))


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)
