"""The same orders and payments live, as a backlog and on Spark give the same records."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eosframework.config import load_settings
from eosframework.spark.backfill.api import Backfill
from tests.conftest import KafkaService
from tests.support.applications.fed_orders import NEVER_IDLE, QUICK, Orders
from tests.support.applications.orders import TOPOLOGY, events, expected, price_changes
from tests.support.applications.pipeline import Pipeline
from tests.support.processes.commands import here
from tests.support.processes.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = """\
  hourly:
    from: by_payment
    steps: [{count: {window: {tumbling: 1h, grace: 3h}, emit: close, store: hourly}}]
    to: [{topic: NAME.hourly, key: string, value: json}]
  visits:
    from: by_payment
    steps: [{count: {window: {session: 30m, grace: 3h}, emit: close, store: visits}}]
    to: [{topic: NAME.visits, key: string, value: json}]
  pairs:
    from: by_payment
    steps:
      - aggregate:
          initial: "builtins:list"
          add: "tests.support.applications.orders:with_id"
          window: {records: 2, step: 1}
          order: time
          store: pairs
    to: [{topic: NAME.pairs, key: string, value: json}]
  first:
    from: by_payment
    steps: [{deduplicate: 6h}]
    to: [{topic: NAME.first, key: string, value: json}]
"""

PRICED = """\
  priced:
    from: by_payment
    steps: [{join: {with: prices, by: "tests.support.applications.orders:both", kind: left}}]
    to: [{topic: NAME.priced, key: string, value: json}]
"""

PRICES = """\
  prices: {topic: NAME.prices, key: string, value: json, history: 2d}
streams:
"""

OUTPUTS = ("paid", "hourly", "visits", "pairs", "first", "priced")


@pytest.fixture
def worlds(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[list[Orders]]:
    made: list[Orders] = []
    for world in ("live", "backlog", "spark"):
        name = unique_name(world)
        topology = TOPOLOGY.replace("streams:\n", PRICES) + WINDOWS + PRICED
        pipeline = Pipeline(kafka.bootstrap_servers, name, tmp_path / name, topology=topology)
        made.append(Orders(pipeline, OUTPUTS, ("orders", "payments", "prices")))
    yield made
    for orders in made:
        orders.pipeline.stop()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_live_backlog_and_spark_send_the_same_records(
    spark: SparkSession, worlds: list[Orders]
) -> None:
    given = sorted([*events(8, 800), *price_changes(8, 800)], key=attrgetter("written"))
    live, backlog, history = worlds
    workers = [live.pipeline.start_worker(settings=[NEVER_IDLE, *QUICK])]
    live.feed_live(given, seed=8)
    backlog.feed(given)
    backlog.feed_ends()
    workers.append(backlog.pipeline.start_worker())
    history.feed(given)
    history.feed_ends()
    servers = f"kafka.bootstrap_servers={history.pipeline.bootstrap_servers}"
    topology = str(history.pipeline.topology_file)
    Backfill(topology, job="history", settings=load_settings(None, [servers])).run(spark)
    of_job = history.results()
    cut_over = here("backfill", "cutover", topology, "--job", "history", "--set", servers)
    assert cut_over.exit_code == 0, cut_over.err
    # Records that only a watermark decides are sent by the live worker: a task of the job knows no
    # later time than that of its own records.
    workers.append(history.pipeline.start_worker(settings=[NEVER_IDLE, *QUICK]))
    assert history.wait_for(expected(given), 180) == expected(given)
    assert of_job.total() > expected(given).total() / 2
    assert of_job - expected(given) == Counter()
    assert live.wait_for(expected(given), 180) == expected(given)
    for orders in (backlog, history):
        wait_until(partial(_are_equal, live, orders), "the same records", 180)
    time.sleep(0.5)  # for records that should not be
    assert all(live.records().values())
    assert all(_are_equal(live, orders) for orders in (backlog, history))
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
        assert worker.events("results_depend_on_pauses") == []


def _are_equal(one: Orders, other: Orders) -> bool:
    return one.records() == other.records()
