"""Two topics compared by Spark: record by record, or by the last value of each key."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eosframework.backfill.job import OffsetRange
from eosframework.backfill.spark.rows import WRITER_HEADER
from eosframework.kafka.admin import ClusterAdmin
from eosframework.processing.receipts import HEADER_RECEIPT
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


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Event times, in milliseconds since the epoch, both included; None: no bound."""

    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A record of one side: the first of its likes, or the last of its key."""

    partition: int
    offset: int
    timestamp: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """Records, or the last record of a key, that are not the same on both sides.

    Args:
        counts: how many there are, live and beside.
        live: None: there is none.
        beside: likewise.
    """

    key: bytes | None
    counts: tuple[int, int]
    live: Place | None
    beside: Place | None


@dataclass(frozen=True, slots=True)
class ComparedTopics:
    """What two topics have and have not in common.

    Args:
        records: how many each has in the range; or keys.
        only: how many only the one, only the other has.
        differences: the first ones by time.
    """

    records: tuple[int, int]
    only: tuple[int, int]
    differences: tuple[TopicDifference, ...]


@dataclass(frozen=True, slots=True)
class How:
    """How topics are compared.

    Args:
        last: by the last value of each key, and not record by record.
        headers: whether headers count, those of the framework apart.
        limit: how many differences are returned.
    """

    last: bool
    headers: bool
    limit: int


def compare_topics(
    spark: SparkSession, rows: Rows, live: Ranges, beside: Ranges, times: TimeRange, how: How
) -> ComparedTopics:
    """Compare the records of two topics whose event times are in a range.

    Args:
        spark: a session of ours.
        rows: reads ranges with it.
        live: ranges of the one topic.
        beside: ranges of the other one.
        times: what is compared.
        how: in which way.
    """
    with _joining_partitions(spark):
        return _compared(_side(rows(live), times, 0), _side(rows(beside), times, 1), how)


def _compared(live: DataFrame, beside: DataFrame, how: How) -> ComparedTopics:
    both = live.unionByName(beside)
    grouped = _by_key(both) if how.last else _by_record(both, headers=how.headers)
    sums = ("sum(live)", "sum(beside)", "sum(only_live)", "sum(only_beside)")
    totals = grouped.selectExpr(*sums).collect()[0].asDict()
    counts = [int(totals[name] or 0) for name in sums]
    found: list[Row] = []
    if counts[2] or counts[3]:
        differing = grouped.where("only_live > 0 OR only_beside > 0")
        first = "coalesce(live_place.timestamp, beside_place.timestamp)"
        found = differing.selectExpr("*", f"{first} AS at").orderBy("at", "key").take(how.limit)
    return ComparedTopics(
        (counts[0], counts[1]), (counts[2], counts[3]), tuple(map(_difference, found))
    )


@contextmanager
def _joining_partitions(spark: SparkSession) -> Generator[None]:
    """Let Spark join small partitions of a shuffle; a backfill's own must not be joined."""
    setting = "spark.sql.adaptive.enabled"
    before = spark.conf.get(setting) or "false"
    spark.conf.set(setting, "true")
    try:
        yield
    finally:
        spark.conf.set(setting, before)


def whole(topic: str, partitions: int, admin: ClusterAdmin) -> dict[TopicPartition, OffsetRange]:
    """Return everything that is committed in a topic, as ranges."""
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
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


def _by_record(both: DataFrame, *, headers: bool) -> DataFrame:
    """Return, for each kind of record, how often either side has it, and where first."""
    alike = ["key", "value", "timestamp"]
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
        "live",
        "beside",
        "greatest(live - beside, 0) AS only_live",
        "greatest(beside - live, 0) AS only_beside",
        "live_place",
        "beside_place",
    )


def _by_key(both: DataFrame) -> DataFrame:
    """Return what either side has last for each key; what was deleted counts as not there."""
    last = _aggregated(
        both,
        ["key"],
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
