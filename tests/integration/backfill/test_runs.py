"""Whole jobs on Spark: what they leave is what live workers would have, and these go on from it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eosframework.config import load_settings
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.spark.backfill.api import Backfill
from eosframework.spark.job.job_entry import JobState
from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.applications.handed_over import JOB, HandedOver
from tests.support.applications.pipeline import Pipeline
from tests.support.processes.commands import here
from tests.support.verifiers.messages import headers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TIMED = """\
application: NAME
sources:
  events:
    topic: NAME.in
    key: bytes
    value: json
    timestamp: "tests.hostile.functions:moment"
    on_error: {dead_letter: NAME.dead}
streams:
  counted:
    from: events
    steps: [{count: {window: {tumbling: 1s}}}]
    to: [{topic: NAME.counted, value: json}]
"""

SEVENS = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: string, value: json}
streams:
  sevens:
    from: numbers
    steps:
      - sum: {of: "tests.support.applications.functions:number_of", window: {records: 7, step: 3}}
    to: {topic: NAME.sevens}
"""


@pytest.fixture
def orders(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[HandedOver]:
    name = unique_name("backfilled")
    pipeline = HandedOver(kafka.bootstrap_servers, name, tmp_path / name, partitions=4)
    yield pipeline
    pipeline.stop()


def job_of(orders: HandedOver, own: Sequence[str] = (), **arguments: Any) -> Backfill:
    settings = load_settings(None, [f"kafka.bootstrap_servers={orders.bootstrap_servers}", *own])
    return Backfill(str(orders.topology_file), job=JOB, settings=settings, **arguments)


@pytest.mark.exhaustive
def test_live_workers_go_on_from_what_a_backfill_has_made(
    spark: SparkSession, orders: HandedOver
) -> None:
    orders.feed(6000)
    seen: list[JobState] = []
    state = job_of(orders).run(spark, seen.append)
    assert all(progress.complete for progress in state.tasks.values())
    assert sum(p.records for p in state.tasks.values()) == 3 * 6000
    assert orders.totals() == 6000
    orders.feed(500)
    early = orders.command("run-worker", "--until-caught-up")
    assert "is complete, not cut over" in early.error
    assert orders.cutover().exit_code == 0
    orders.finish()
    orders.finish_live()
    assert orders.findings() == []


@pytest.mark.exhaustive
def test_workers_with_leased_ids_go_on_from_what_a_backfill_has_made(
    spark: SparkSession,
    kafka: KafkaService,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    database: str,
) -> None:
    """The job and the cutover have the settings of the workers."""
    name = unique_name("leased")
    environment = {"EOS_WORKER__IDS": "leased", "EOS_DATABASE__DSN": database}
    orders = HandedOver(
        kafka.bootstrap_servers, name, tmp_path / name, partitions=4, environment=environment
    )
    pool = [f"{name.upper()}/TX {number:02}" for number in range(12)]
    try:
        assert orders.command("ids add", *pool).exit_code == 0
        orders.feed(2000)
        job_of(orders, own=("worker.ids=leased", f"database.dsn={database}")).run(spark)
        assert orders.totals() == 2000
        orders.feed(500)
        assert orders.cutover().exit_code == 0
        listed = orders.command("ids list", "--json").json["ids"]
        assert {row["id"] for row in listed if row["task"]} == set(pool)
        orders.finish()
        orders.finish_live()
        assert orders.findings() == []
    finally:
        orders.stop()


def test_a_job_ends_where_it_was_fixed_and_does_nothing_twice(
    spark: SparkSession, orders: HandedOver
) -> None:
    orders.feed(2000)
    job_of(orders, end=[f"{orders.source}[{n}]=400" for n in range(4)]).run(spark)
    assert orders.totals() == 1600
    orders.feed(100)
    again = job_of(orders).run(spark)
    assert orders.totals() == 1600
    assert sum(p.records for p in again.tasks.values()) == 3 * 1600
    with pytest.raises(ConfigurationError, match="with another request: --from"):
        job_of(orders, start=["beginning"]).run(spark)


def test_a_running_application_is_not_backfilled(spark: SparkSession, orders: HandedOver) -> None:
    orders.feed(200)
    worker = orders.work("live")
    worker.wait_for_event("task_assigned", 4)
    with pytest.raises(StartRefused, match="workers of it are running"):
        job_of(orders).run(spark)


@pytest.mark.exhaustive
def test_one_event_time_of_a_far_future_is_a_dead_letter_of_a_backfill_too(
    spark: SparkSession, kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Of a topic; files are trusted. No later record is late for it, as in a worker."""
    pipeline = Pipeline(
        kafka.bootstrap_servers,
        unique_name("ahead"),
        tmp_path / "pipeline",
        topology=TIMED,
        partitions=1,
        outputs={"counted": 1},
    )
    pipeline.apply()
    now_ms, far_ms = round(time.time() * 1000), 253_402_300_799_999
    producer = feeder(kafka.bootstrap_servers)
    for number, moment in enumerate((now_ms, far_ms, now_ms + 1000, now_ms + 2000)):
        producer.produce(pipeline.source, json.dumps({"n": number, "t": moment}), b"key")
    assert producer.flush(60) == 0
    settings = load_settings(None, [f"kafka.bootstrap_servers={kafka.bootstrap_servers}"])
    Backfill(str(pipeline.topology_file), job=JOB, settings=settings).run(spark)
    assert len(pipeline.read(f"{pipeline.name}.counted")) == 3
    [letter] = pipeline.read(f"{pipeline.name}.dead")
    assert json.loads(letter.value() or b"") == {"n": 1, "t": far_ms}
    # Brokers refuse a result of such a time as well.
    error = headers_of(letter)["__streams.errors.exception"] or b""
    assert b"worker.max_event_time_ahead" in error
    pipeline.stop()


@pytest.mark.exhaustive
def test_windows_of_records_of_a_backfill_are_those_of_the_log_and_workers_complete_the_last_ones(
    spark: SparkSession, kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Event times go down, and have no part in it."""
    pipeline = Pipeline(
        kafka.bootstrap_servers,
        unique_name("records"),
        tmp_path / "pipeline",
        topology=SEVENS,
        partitions=3,
        outputs={"sevens": 3},
    )
    pipeline.apply()
    settings = load_settings(None, [f"kafka.bootstrap_servers={kafka.bootstrap_servers}"])
    feed_keys(pipeline, range(200))
    Backfill(str(pipeline.topology_file), job=JOB, settings=settings).run(spark)
    assert sevens_of(pipeline) == expected_sevens(200)
    feed_keys(pipeline, range(200, 300))
    servers = f"kafka.bootstrap_servers={kafka.bootstrap_servers}"
    cutover = "backfill", "cutover", str(pipeline.topology_file), "--job", JOB, "--set", servers
    assert (done := here(*cutover)).exit_code == 0, done.err
    pipeline.finish()
    assert sevens_of(pipeline) == expected_sevens(300)
    pipeline.stop()


def feed_keys(pipeline: Pipeline, numbers: range) -> None:
    """Append numbers, each with its last digit as the key."""
    producer = feeder(pipeline.bootstrap_servers)
    for n in numbers:
        at = 1_700_000_000_000 - 10 * n
        producer.produce(pipeline.source, json.dumps({"n": n}), str(n % 10), timestamp=at)
    assert producer.flush(60) == 0


def sevens_of(pipeline: Pipeline) -> Counter[tuple[str, int, int, int]]:
    """Return key, start, end and value of each result."""
    found: Counter[tuple[str, int, int, int]] = Counter()
    for message in pipeline.read(f"{pipeline.name}.sevens"):
        result = json.loads(message.value() or b"")
        key = (message.key() or b"").decode()
        found[key, result["start"], result["end"], result["value"]] += 1
    return found


def expected_sevens(numbers: int) -> Counter[tuple[str, int, int, int]]:
    """Return the sums of the last seven numbers of each key, after each third one."""
    found: Counter[tuple[str, int, int, int]] = Counter()
    for key in range(10):
        of_key = range(key, numbers, 10)
        for end in range(3, len(of_key) + 1, 3):
            start = max(0, end - 7)
            found[str(key), start, end, sum(of_key[start:end])] += 1
    return found
