"""Rows of the failure taxonomy that a coordinator raises which forgot an id."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework.embedded import start_kafka
from tests.support.applications.pipeline import wait_until
from tests.support.faults.errors_raised import Seen, error_of, raises
from tests.support.faults.provocateur import Provocateur, next_offset

pytestmark = pytest.mark.kafka

FORGETFUL = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transactional.id.expiration.ms": "8000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:importlib.resources")
@pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")
@raises(("INVALID_PRODUCER_ID_MAPPING", "commit"), ("INVALID_PRODUCER_ID_MAPPING", "send_offsets"))
def test_an_id_the_coordinator_forgot_is_recoverable(
    tmp_path_factory: pytest.TempPathFactory,
) -> Seen:
    directory = tmp_path_factory.mktemp("forgetful")
    with start_kafka(directory, fast_start=True, properties=FORGETFUL) as cluster:
        broker = Provocateur(cluster)
        topic = broker.topic()
        idle = [broker.begun("idle-0"), broker.begun("idle-1")]
        for producer in idle:
            producer.produce(topic, b"x")
            producer.commit_transaction()
        _wait_until_forgotten(cluster.bootstrap_servers)
        for producer in idle:
            producer.begin_transaction()
        idle[0].produce(topic, b"y")
        group = broker.consumer().consumer_group_metadata()
        return [
            (error_of(idle[0].commit_transaction), "commit"),
            (
                error_of(idle[1].send_offsets_to_transaction, next_offset(topic), group),
                "send_offsets",
            ),
        ]


def _wait_until_forgotten(bootstrap_servers: str) -> None:
    """Return once the coordinator lists no transactional id."""
    from kafka import KafkaAdminClient

    # The stubs of kafka-python are of version 2, which had no such methods.
    admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        wait_until(
            lambda: not any(admin.list_transactions().values()), "the end of transactional ids"
        )
    finally:
        admin.close()
