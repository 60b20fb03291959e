"""An admin client that does not send a question is replaced while the question waits."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from tests.conftest import KafkaService
from tests.support.applications.pipeline import wait_until
from tests.support.faults.proxied import proxied_kafka

IDLE_SECONDS = 3.0
"""Behind a break, after which librdkafka was seen not to connect for a question any more."""

DESCRIBE_GROUPS = 15


@pytest.mark.slow
def test_a_question_is_answered_after_a_break_and_across_one(tmp_path: Path) -> None:
    properties = {"offsets.topic.num.partitions": "4"}
    with proxied_kafka(tmp_path / "kafka", nodes=1, properties=properties) as cluster:
        admin = ClusterAdmin(KafkaSettings(bootstrap_servers=cluster.bootstrap_servers))

        def is_answered() -> bool:
            try:
                return admin.describe_group("nobody").members == ()
            except ClusterUnreachable:  # the broker creates its topic of groups
                return False

        wait_until(is_answered, "the coordinator of groups")
        for _ in range(2):
            cluster.proxies[1].break_connections()
            threading.Event().wait(IDLE_SECONDS)
            assert admin.describe_group("nobody").members == ()

        held = cluster.hold(DESCRIBE_GROUPS, b"nobody")
        assert admin.describe_group("nobody").members == ()
        held.wait(0)


def test_a_question_that_one_client_keeps_is_asked_by_another(kafka: KafkaService) -> None:
    """A client kept one for 180 s on a cluster that had just started, and knew its broker."""
    admin = ClusterAdmin(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    asked: list[Any] = []

    def ask(timeout: float) -> Future[Any]:
        asked.append(admin._client)
        if len(asked) == 1:
            return Future()
        return admin._client.describe_cluster(request_timeout=timeout)

    assert admin._request(ask).cluster_id
    first, second = asked
    assert first is not second
