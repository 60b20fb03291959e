"""Two topics compared by Spark: record by record, or by the last value of each key and window."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.backfill.diff.record_identity import CompareBy, Comparison
from eosframework.backfill.job.job_entry import OffsetRange
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.processing.transaction.receipts import HEADER_RECEIPT
from eosframework.records import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Ranges = Mapping[TopicPartition, OffsetRange]
Rows = Callable[[Ranges], "DataFrame"]
"""Reads ranges of topics."""

_OWN_HEADERS = f"'{WRITER_HEADER}', '{HEADER_RECEIPT}'"
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
