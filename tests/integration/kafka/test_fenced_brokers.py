"""Clients that were told of no broker, while the only one was fenced, find it nevertheless."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.embedded import start_kafka
from eosframework.errors import Retriable
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.admin.requests import knows_broker
from eosframework.kafka.producer.transactional import TransactionalProducer
from eosframework.records import TopicPartition
from tests.conftest import SMALL_BROKER
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

OFTEN_FENCED = {
    **SMALL_BROKER,
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "3000",
}
"""The controller fences the broker before each of its heartbeats."""

FENCED_BETWEEN_HEARTBEATS = {
    **SMALL_BROKER,
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "1700",
}
"""Each heartbeat ends the fence of 0.7 s before it."""


def brokers_known_to(servers: str) -> int:
    """Return how many brokers the first answer to a new client names."""
    try:
        return len(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=1).brokers)
    except KafkaException:
        return 0


@pytest.mark.exhaustive
def test_a_request_that_begins_under_a_fence_or_whose_client_forgot_is_answered_after_it(
    tmp_path: Path,
) -> None:
    told_of_none = 0
    with start_kafka(
        tmp_path / "kafka", properties=FENCED_BETWEEN_HEARTBEATS, fast_start=True
    ) as cluster:
        settings = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
        while told_of_none < 3:
            told_of_none += not brokers_known_to(cluster.bootstrap_servers)
            assert ClusterAdmin(settings).cluster_id()
        for request in (
            ClusterAdmin.cluster_id,
            lambda admin: admin.create_topics([TopicToCreate("any", 1)]),
        ):
            admin = ClusterAdmin(settings)
            admin.committed("any", [TopicPartition("any", 0)])
            wait_until(lambda: not knows_broker(admin._client), "a client that forgot")  # noqa: B023
            request(admin)


@pytest.mark.exhaustive
def test_a_producer_that_forgot_all_brokers_is_exchanged(tmp_path: Path) -> None:
    answers: list[int] = []

    def is_lost() -> bool:
        try:
            answers.append(len(producer.list_topics(timeout=2).brokers))
        except KafkaException:
            return 0 in answers
        return False

    with start_kafka(tmp_path / "kafka", properties=OFTEN_FENCED, fast_start=True) as cluster:
        servers: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers}
        create_topics(AdminClient(servers), [NewTopic("any", 1, 1)])
        producer = TransactionalProducer({**servers, "transactional.id": "app"})
        wait_until(is_lost, "an answer without brokers")
    with start_kafka(tmp_path / "kafka", properties=SMALL_BROKER, fast_start=True), producer:
        with pytest.raises(Retriable):
            producer.init_transactions(6)
        producer.init_transactions(30)
