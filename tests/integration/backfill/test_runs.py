"""Whole jobs on Spark: what they leave is what live workers would have, and these go on from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eosframework.backfill.api import Backfill
from eosframework.backfill.job.job_entry import JobState
from eosframework.config import load_settings
from eosframework.errors import ConfigurationError, StartRefused
from tests.conftest import KafkaService
from tests.support.applications.handed_over import JOB, HandedOver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def orders(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[HandedOver]:
    name = unique_name("backfilled")
    pipeline = HandedOver(kafka.bootstrap_servers, name, tmp_path / name, partitions=4)
    yield pipeline
    pipeline.stop()


def job_of(orders: HandedOver, **arguments: Any) -> Backfill:
    settings = load_settings(None, [f"kafka.bootstrap_servers={orders.bootstrap_servers}"])
    return Backfill(str(orders.topology_file), job=JOB, settings=settings, **arguments)


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
