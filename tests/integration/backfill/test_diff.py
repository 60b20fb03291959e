"""What a job wrote beside live topics and tables is compared with what live has there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pydantic import SecretStr

from eosframework.config import DatabaseSettings, KafkaSettings, Settings
from eosframework.errors import ConfigurationError
from eosframework.records import WindowResult
from eosframework.serialization.serdes import WINDOW
from eosframework.spark.backfill.api import Backfill
from eosframework.spark.backfill.job_diff import Diff, compare
from eosframework.spark.backfill.topic_diff import (
    CompareBy,
    Comparison,
    DiffOptions,
    TimeRange,
    compare_rows,
)
from eosframework.topology.loader import load_app
from eosframework.topology.spec.keyed_spec import Window, WindowKind
from tests.conftest import KafkaService
from tests.support.applications.tables import TablesWorld

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{topic: NAME.doubled, value: json}, {table: doubled, mode: append}]
  totals:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count: {}
    to: {topic: NAME.totals, value: json}
  windows:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count: {window: {tumbling: 100ms}}
    to: NAME.windows
"""
RECORDS = 500
FIRST = 1_700_000_000_000


class Sides(TablesWorld):
    """Live outputs, and those of a job beside them."""

    producer: Producer

    def settings(self) -> Settings:
        return Settings(
            kafka=KafkaSettings(bootstrap_servers=self.bootstrap_servers),
            database=DatabaseSettings(dsn=SecretStr(self.dsn)),
        )

    def put_live(self) -> None:
        """Write what live workers would have."""
        totals: Counter[str] = Counter()
        windows: Counter[tuple[str, int]] = Counter()
        for n in range(self.fed):
            key = str(n % 10)
            totals[key] += 1
            self.put("doubled", {"n": 2 * n}, key=str(n), at=n)
            self.put("totals", totals[key], key=key, at=n)
            start = (FIRST + n) // 100 * 100
            windows[key, start] += 1
            window = {"start": start, "end": start + 100, "value": windows[key, start]}
            self.put("windows", window, key=key, at=n)
        self.flush()
        self.see(f"INSERT INTO doubled SELECT 2 * n FROM generate_series(0, {self.fed - 1}) AS n")

    def make(self, *arguments: str) -> None:
        """Create what is needed; Spark starts a task for each partition that it reads."""
        applied = self.run("apply", "--set", "topics.partitions=2", *arguments)
        assert applied.exit_code == 0, applied.err

    def run_beside(self, spark: SparkSession) -> None:
        self.make("--suffix", "v2")
        Backfill(str(self.topology_file), job="again", suffix="v2", settings=self.settings()).run(
            spark
        )

    def compare(self, spark: SparkSession, **how: Any) -> Diff:
        return compare(
            lambda: spark,
            load_app(str(self.topology_file)),
            self.settings(),
            "again",
            "v2",
            DiffOptions(**how),
            where=None,
        )

    def put(self, topic: str, value: Any, *, key: str, at: int) -> None:
        """Append a record where workers would put its key; `flush` waits for it."""
        text = json.dumps(value, separators=(",", ":"))
        self.producer.produce(f"{self.name}.{topic}", text, key, timestamp=FIRST + at)

    def flush(self) -> None:
        assert self.producer.flush(60) == 0


@pytest.fixture
def sides(
    kafka: KafkaService, database: str, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Sides]:
    name = unique_name("sides")
    made = Sides(kafka.bootstrap_servers, name, tmp_path, database, topology=TOPOLOGY, partitions=2)
    made.see("CREATE TABLE doubled (n integer)")
    made.see("CREATE TABLE doubled_v2 (n integer)")
    made.make()
    made.producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    yield made
    made.stop()


Written = tuple[str, bytes | None, int]
"""Key, value and time, in the order of the partition."""


def rows_of(spark: SparkSession, records: Sequence[Written]) -> DataFrame:
    rows = [(0, n, time, key.encode(), value) for n, (key, value, time) in enumerate(records)]
    schema = "partition int, offset bigint, timestamp bigint, key binary, value binary"
    return spark.createDataFrame(rows, schema)


def result(start: int, value: int | None, size: int = 100) -> bytes:
    """A window's result as a worker writes it."""
    assert WINDOW.encode is not None
    return WINDOW.encode(WindowResult(start, start + size, value))


def test_windows_are_compared_by_key_and_window_and_what_the_range_cuts_is_told_apart(
    spark: SparkSession,
) -> None:
    """Compared by key alone it was 6 of these 78 windows, the last of each key."""
    windows = Comparison(CompareBy.LAST, Window(WindowKind.TUMBLING, 100, grace_ms=50))
    keys, starts = [f"k{n}" for n in range(6)], [100 * n for n in range(13)]
    updates: list[Written] = [
        (key, result(start, count), start + count)
        for start in starts
        for count in (1, 2)
        for key in keys
    ]
    live: list[Written] = [
        *updates,
        # Live had begun an earlier window before the range, and went on with one behind it.
        ("k0", result(0, 9), 90),
        ("k1", result(1200, 5), 1240),
        # A session that another record has made longer is gone under its former bounds.
        ("k", result(500, 1, 5), 505),
        ("k", result(500, None, 5), 505),
    ]
    # The same updates in another order, which they do not have, but for one that is wrong.
    suffixed = [
        (key, result(300, 7) if (key, time) == ("k2", 302) else value, time)
        for key, value, time in sorted(updates, key=lambda record: record[0])
    ]
    sides = rows_of(spark, live), rows_of(spark, suffixed)

    found = compare_rows(*sides, TimeRange(1, 1249, is_cut=True), windows, DiffOptions())
    assert (found.records, found.only, found.cut) == ((78, 78), (1, 1), 2)
    [difference] = found.differences
    assert (difference.key, difference.counts) == (b"k2", (1, 1))
    assert difference.suffixed is not None
    assert difference.suffixed.value == result(300, 7)

    whole = compare_rows(*sides, TimeRange(), windows, DiffOptions())
    assert (whole.records, whole.only, whole.cut) == ((78, 78), (3, 3), 0)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_equal_sides_are_equal_and_each_kind_of_difference_is_found(
    sides: Sides, spark: SparkSession
) -> None:
    name = sides.name
    sides.feed(RECORDS)
    sides.put_live()
    with pytest.raises(ConfigurationError, match="no backfill job"):
        sides.compare(spark)
    sides.run_beside(spark)

    equal = sides.compare(spark, headers=True)
    assert equal.is_equal
    assert equal.times.first == FIRST
    assert equal.times.last == FIRST + RECORDS - 1
    assert equal.topics[f"{name}.doubled"].records == (RECORDS, RECORDS)
    assert equal.topics[f"{name}.totals"].records == (10, 10)
    assert equal.topics[f"{name}.windows"].records == (10 * RECORDS // 100, 10 * RECORDS // 100)
    assert equal.topics[f"{name}.windows"].how.label == "last value of each key and window"
    by_record = sides.compare(spark, by=CompareBy.RECORDS)
    assert by_record.is_equal
    assert by_record.topics[f"{name}.windows"].records == (RECORDS, RECORDS)
    assert equal.tables["doubled"].rows == (RECORDS, RECORDS)

    sides.put("doubled", {"n": 8}, key="4", at=4)
    sides.put("doubled_v2", {"n": -1}, key="100", at=100)
    sides.put("doubled", {"n": 5}, key="later", at=RECORDS)
    sides.put("totals", 999, key="3", at=200)
    sides.flush()
    sides.see("DELETE FROM doubled_v2 WHERE n = 14")
    found = sides.compare(spark, topics={f"{name}.totals": CompareBy.RECORDS})
    assert not found.is_equal
    doubled = found.topics[f"{name}.doubled"]
    assert doubled.only == (1, 1)
    assert [(d.key, d.counts) for d in doubled.differences] == [(b"4", (2, 1)), (b"100", (0, 1))]
    assert doubled.differences[0].live is not None
    assert doubled.differences[0].live.offset < RECORDS
    assert doubled.differences[1].suffixed is not None
    assert doubled.differences[1].suffixed.value == b'{"n":-1}'
    assert found.topics[f"{name}.totals"].only == (1, 0)
    assert found.tables["doubled"].only == (1, 0)
    assert found.tables["doubled"].examples[0] == [{"n": 14}]

    early = sides.compare(spark, within=TimeRange(last=FIRST + 99))
    assert early.topics[f"{name}.doubled"].records == (101, 100)
    assert early.topics[f"{name}.doubled"].only == (1, 0)
    middle = sides.compare(spark, within=TimeRange(FIRST + 90, FIRST + 99, is_cut=True))
    assert middle.topics[f"{name}.doubled"].records == (10, 10)
    assert middle.topics[f"{name}.doubled"].only == (0, 0)
    assert "tables are compared whole" in middle.notes[-1]
    with pytest.raises(ConfigurationError, match="none of which are within"):
        sides.compare(spark, within=TimeRange(FIRST + RECORDS + 1))
    parts = [sides.compare(spark, partitions=frozenset({number})) for number in range(2)]
    counts = [part.topics[f"{name}.doubled"].records for part in parts]
    assert (sum(live for live, _ in counts), sum(job for _, job in counts)) == (501, 501)
    assert all(live and job for live, job in counts)
    places = [d for part in parts for d in part.topics[f"{name}.doubled"].differences]
    assert {d.key for d in places} == {b"4", b"100"}
    with pytest.raises(ConfigurationError, match=r"--partition 2: topic .* has only"):
        sides.compare(spark, partitions=frozenset({0, 2}))

    last = sides.compare(spark, by=CompareBy.LAST, limit=1)
    assert last.topics[f"{name}.totals"].only == (1, 1)
    [difference] = last.topics[f"{name}.totals"].differences
    assert difference.key == b"3"
    assert difference.live is not None
    assert difference.suffixed is not None
    assert (difference.live.value, difference.suffixed.value) == (b"999", b"50")
