"""Questions to a cluster that was away."""

from __future__ import annotations

from pathlib import Path

import pytest

from eosframework.config import KafkaSettings
from eosframework.embedded import start_kafka
from eosframework.errors import ClusterUnreachable
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.records import TopicPartition
from tests.support.applications.pipeline import wait_until


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_broker_that_was_restarted_is_asked_for_offsets_under_its_new_epoch(
    tmp_path: Path,
) -> None:
    partition = TopicPartition("topic", 0)
    with start_kafka(tmp_path / "kafka", fast_start=True) as cluster:
        patient = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
        ClusterAdmin(patient).create_topics([TopicToCreate("topic", 1)])
        settings = patient.model_copy(update={"request_timeout_seconds": 2})
        admin = ClusterAdmin(settings)

        def answered() -> bool:
            try:
                return admin.log_bounds([partition]) == {partition: (0, 0)}
            except ClusterUnreachable:
                return False

        wait_until(answered, "a first answer")
        [node] = cluster.nodes
        node.kill()
        for _ in range(3):
            with pytest.raises(ClusterUnreachable):
                admin.high_watermarks([partition])
        node.start()
        wait_until(answered, "an answer")
