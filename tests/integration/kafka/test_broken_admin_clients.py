"""An admin client whose connection broke while it was idle answers with the second question."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from tests.support.applications.pipeline import wait_until
from tests.support.faults.proxied import proxied_kafka

IDLE_SECONDS = 3.0
"""Behind a break, after which librdkafka was seen not to connect for a question any more."""


@pytest.mark.slow
def test_a_question_without_an_answer_is_not_the_last(tmp_path: Path) -> None:
    properties = {"offsets.topic.num.partitions": "4"}
    with proxied_kafka(tmp_path / "kafka", nodes=1, properties=properties) as cluster:
        settings = KafkaSettings(
            bootstrap_servers=cluster.bootstrap_servers, request_timeout_seconds=5
        )
        admin = ClusterAdmin(settings)

        def is_answered() -> bool:
            try:
                return admin.describe_group("nobody").members == ()
            except ClusterUnreachable:  # the broker creates its topic of groups
                return False

        wait_until(is_answered, "the coordinator of groups")
        for _ in range(2):
            cluster.proxies[1].break_connections()
            threading.Event().wait(IDLE_SECONDS)
            try:
                admin.describe_group("nobody")
            except ClusterUnreachable:
                assert admin.describe_group("nobody").members == ()
