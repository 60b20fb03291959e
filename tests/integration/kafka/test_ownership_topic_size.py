"""The ownership topic after many crashes: how many records a start reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from eosframework.application.ownership_topic import SETTINGS, OwnershipTopic
from eosframework.application.topic_settings import TopicRole, settings_at_creation
from eosframework.config import KafkaSettings
from eosframework.embedded import start_kafka
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.records import TopicPartition
from eosframework.transactions.ownership import Claim, add_entries, parse, remove_entries
from tests.conftest import SMALL_BROKER
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

TASKS = 64
CRASHES = 150
FASTER = 1000
"""The times in the topic's settings are divided by this, or the test would last an hour."""

CLEANER = {**SMALL_BROKER, "log.cleaner.backoff.ms": "100"}


@pytest.mark.exhaustive
def test_a_crash_loop_of_64_tasks_leaves_few_records_for_the_next_start(tmp_path: Path) -> None:
    """Each process claims its tasks, removes its predecessor's entries, and is killed."""
    cluster = start_kafka(tmp_path, fast_start=True, properties=CLEANER)
    try:
        settings = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
        admin = ClusterAdmin(settings)
        log = OwnershipTopic("shop", settings, admin)
        log.ensure()
        make_faster(cluster.bootstrap_servers, log.topic)
        for crash in range(CRASHES):
            claims = claims_of(crash)
            add_entries(log, claims)
            if crash:
                remove_entries(log, claims_of(crash - 1))
        written = records_in(settings, admin, log.topic)
        assert written > TASKS * CRASHES / 2, "nearly all of them, before they are compacted"

        def shrank() -> bool:
            # As each later start: without new records brokers have no reason to compact again.
            log.write({b"stray": b"{}"})
            return records_in(settings, admin, log.topic) <= 4 * TASKS

        wait_until(shrank, f"{4 * TASKS} records or less")
        print(f"a start reads {written} records, later {records_in(settings, admin, log.topic)}")
        log.write({b"stray": None})
        fresh = OwnershipTopic("shop", settings, admin)
        assert {e.claim for e in parse(fresh.read(), log.topic)} == set(claims_of(CRASHES - 1))
    finally:
        cluster.kill()


def claims_of(process: int) -> list[Claim]:
    return [
        Claim("orders", number, ("orders",), f"shop:worker.{process}:0", f"{process}.{number}")
        for number in range(TASKS)
    ]


def make_faster(bootstrap_servers: str, topic: str) -> None:
    entries = [
        ConfigEntry(name, str(int(value) // FASTER), incremental_operation=AlterConfigOpType.SET)
        for name, value in {**settings_at_creation(TopicRole.OWNERSHIP), **SETTINGS}.items()
        if name.endswith(".ms") and not name.startswith("message.")
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(60)


def records_in(settings: KafkaSettings, admin: ClusterAdmin, topic: str) -> int:
    """How many records a reading from the beginning passes."""
    partition = TopicPartition(topic, 0)
    bounds = admin.log_bounds([partition])
    return sum(len(messages) for _, messages in read_ranges(settings, bounds))
