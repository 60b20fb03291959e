"""History goes into tables once, and table writers go on behind it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from eosframework.application.context import connect
from eosframework.config import BackfillSettings, DatabaseSettings, KafkaSettings, Settings
from eosframework.errors import RunError
from eosframework.spark.backfill.job_start import start
from eosframework.spark.backfill.stage_runner import run_tables
from eosframework.spark.job.stages import Request
from eosframework.spark.session.executors import failure_of
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from tests.support.applications.feeding import feeder
from tests.support.applications.tables import TablesWorld

pytest.importorskip("pyspark")
from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOTH_WAYS = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  kept:
    from: numbers
    to: [{table: numbers, mode: append}]
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{table: doubled, mode: append}]
"""


def settings_of(world: TablesWorld) -> Settings:
    return Settings(
        kafka=KafkaSettings(bootstrap_servers=world.bootstrap_servers),
        database=DatabaseSettings(dsn=SecretStr(world.dsn), batch_rows=500),
        backfill=BackfillSettings(commit_interval_seconds=0.3, stall_seconds=1),
    )


@pytest.fixture
def world(make_tables: Callable[..., TablesWorld]) -> TablesWorld:
    made = make_tables(topology=BOTH_WAYS)
    made.see("CREATE TABLE numbers (n integer)")
    made.see("CREATE TABLE doubled (n integer)")
    made.apply()
    # Rows are written before any transform runs; its internal topics are recorded by a start.
    starting = made.start_worker(instance="first", until_caught_up=True)
    assert starting.wait() == 0, starting.log[-3000:]
    return made


def carry(world: TablesWorld, spark: SparkSession, job: str = "history") -> None:
    """Run the stage of the tables alone; the other stages have filled the topic of rows."""
    graph = resolve(load_app(str(world.topology_file)))
    settings = settings_of(world)
    started = start(connect(graph, settings), job, Request(), lambda request: ())
    run_tables(spark, started, started.state, lambda act: act())


def feed(world: TablesWorld, count: int) -> None:
    """Append numbers to the input, and what comes of them to the topic of rows."""
    first = world.fed
    world.feed(count)
    producer = feeder(world.bootstrap_servers)
    for n in range(first, first + count):
        row = json.dumps({"n": 2 * n}).encode()
        producer.produce(f"{world.name}-doubled-rows", row, str(n).encode(), n % 4)
    assert producer.flush(60) == 0


def positions(world: TablesWorld) -> dict[str, int]:
    rows = world.see(
        "SELECT topic, sum(next_offset)::int FROM eosframework.positions GROUP BY topic"
    )
    return dict(rows)


def test_history_is_in_the_tables_once_and_table_writers_go_on_behind_it(
    world: TablesWorld, spark: SparkSession
) -> None:
    feed(world, 3000)
    carry(world, spark)
    assert world.kept("numbers").clean
    assert world.kept("doubled", 2).clean
    assert positions(world) == {world.source: 3000, f"{world.name}-doubled-rows": 3000}

    carry(world, spark)  # the stage is complete
    carry(world, spark, "another")  # everything is there
    assert world.count("numbers") == world.count("doubled") == 3000

    feed(world, 1000)
    # What transforms would make of these numbers is in the topic of rows already.
    assert world.run("positions set", f"{world.source}=latest").exit_code == 0
    live = world.start_worker(instance="live")
    world.wait_for(4000, "numbers")
    world.wait_for(4000, "doubled")
    carry(world, spark, "third")  # left to the table writer that runs
    assert live.process.poll() is None
    live.signal(signal.SIGTERM)
    assert live.wait() == 0, live.log[-4000:]
    assert world.kept("numbers").clean
    assert world.kept("doubled", 2).clean


@pytest.mark.exhaustive
def test_a_row_that_is_refused_ends_the_job_with_its_record_and_mended_it_goes_on(
    world: TablesWorld, spark: SparkSession
) -> None:
    world.see("ALTER TABLE numbers ADD CHECK (n <> 1300)")
    feed(world, 2000)
    with pytest.raises(Py4JJavaError) as failed:
        carry(world, spark)
    encoded = failure_of(failed.value)
    assert isinstance(encoded, RunError)
    assert "table numbers refuses the row of record" in str(encoded)
    assert world.count("numbers") < 2000
    world.see("ALTER TABLE numbers DROP CONSTRAINT numbers_n_check")
    carry(world, spark)
    assert world.kept("numbers").clean
    assert world.kept("doubled", 2).clean
