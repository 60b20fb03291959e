"""The driver of a Kafka sink with ten thousand shards, and the messages of all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psutil
import pytest

from eosframework.config import KafkaSettings, Settings, WorkerSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.spark.sinks.kafka.columns import KafkaColumns
from eosframework.spark.sinks.kafka.driver import KafkaSinkDriver, KafkaSinkOptions
from eosframework.spark.sinks.sink_entry import BatchIdentity, Decision, ShardProgress, shard_key
from eosframework.topology.graph.graph import OnError
from tests.conftest import KafkaService

SHARDS = 10_000
ROWS = 10**9


@pytest.mark.exhaustive
def test_a_driver_holds_the_progress_of_many_shards_and_fences_them(
    kafka: KafkaService, unique_name: Callable[[str], str]
) -> None:
    name = unique_name("shards")
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers=kafka.bootstrap_servers),
        worker=WorkerSettings(receipts=True),
    )
    ClusterAdmin(settings.kafka).create_topics([TopicToCreate(name, 4)])
    columns = KafkaColumns(name, None, "k", "struct", None, None, None)
    options = KafkaSinkOptions(name, "out", columns, SHARDS, True, None, settings, OnError())

    def batch(number: int) -> BatchIdentity:
        return BatchIdentity(query="q", number=number, range="r")

    def write(driver: KafkaSinkDriver, first: int) -> None:
        entries = {
            shard_key("out", shard): ShardProgress(
                sequence=1, batch=batch(0), rows=ROWS, complete=True, attempt="a", written_at=1
            ).to_entry()
            for shard in range(first, first + 500)
        }
        driver._journal.write(entries)

    began = psutil.Process().memory_info().rss
    driver = options.own(batch(0))
    try:
        driver.accept(batch(0), "file:/none")
        for first in range(0, SHARDS, 500):
            write(driver, first)
    finally:
        driver.close()

    driver = options.own(batch(0))
    try:
        assert driver.decide(batch(0)) is Decision.RESUME
        assert not driver.give_up(), "rows are committed"
        opened = driver.last
        assert opened is not None
        driver._counts = dict.fromkeys(range(SHARDS), ROWS)
        driver.complete(opened, SHARDS * ROWS)
        accepted = driver.accept(batch(1), "file:/none")
        assert accepted.positions == (ROWS,) * SHARDS
    finally:
        driver.close()

    driver = options.own(batch(1))
    try:
        assert driver.give_up(), "all ids are fenced"
        assert threading.active_count() < 100
        assert psutil.Process().memory_info().rss - began < 250 * 2**20
    finally:
        driver.close()
