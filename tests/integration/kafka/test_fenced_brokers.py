"""A producer that lost all brokers while the only one was fenced takes its id nevertheless."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from eosframework.embedded import start_kafka
from eosframework.errors import Retriable
from eosframework.kafka.producer.transactional import TransactionalProducer
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
