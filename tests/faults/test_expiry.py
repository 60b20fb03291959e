"""Ids and transactions that the brokers let expire: their owner goes on and says what happened."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eosframework.config import KafkaSettings
from eosframework.embedded import KafkaCluster, start_kafka
from eosframework.kafka.inspect.coordinators import list_transactions
from eosframework.kafka.inspect.wire import Wire
from tests.conftest import SMALL_BROKER
from tests.support.applications.pipeline import Pipeline, wait_until

RECORDS = 400

FORGETFUL = {
    **SMALL_BROKER,
    "transactional.id.expiration.ms": "4000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
    "producer.id.expiration.ms": "4000",
    "producer.id.expiration.check.interval.ms": "300",
}


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker that forgets a transactional.id after four idle seconds."""
    cluster = start_kafka(tmp_path / "kafka", fast_start=True, properties=FORGETFUL)
    yield cluster
    cluster.kill()


@pytest.fixture
def pipeline(
    forgetful: KafkaCluster, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Pipeline]:
    made = Pipeline(forgetful.bootstrap_servers, unique_name("app"), tmp_path / "pipeline")
    yield made
    made.stop()


def are_known(ids: list[str], pipeline: Pipeline) -> bool:
    """Tell whether the broker knows one of these ids."""
    with Wire(KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)) as wire:
        known = {listed.transactional_id for listed in list_transactions(wire)}
    return not known.isdisjoint(ids)


def test_a_worker_idle_past_the_expiry_of_its_ids_goes_on_and_names_them(
    pipeline: Pipeline,
) -> None:
    pipeline.feed(RECORDS)
    worker = pipeline.start_worker()
    wait_until(lambda: pipeline.committed() == RECORDS, "a first batch")
    wait_until(lambda: not are_known(worker.ids(), pipeline), "the expiry of the ids")
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == 2 * RECORDS, "a batch after the expiry")
    expired = {e["transactional_id"] for e in worker.events("transactional_id_expired")}
    assert expired == set(worker.ids()), worker.log[-3000:]
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_transaction_timeout_that_the_brokers_do_not_allow_is_refused_at_the_start(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline()
    worker = pipeline.start_worker(settings=["worker.transaction_timeout_seconds=901"])
    assert worker.wait() == 2, worker.log[-3000:]
    assert "worker.transaction_timeout_seconds=901" in worker.log
    assert "transaction.max.timeout.ms=900000" in worker.log
    assert "Traceback" not in worker.log
