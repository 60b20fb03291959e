"""Reading a group's committed positions from a broker that has only just started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eosframework.embedded import start_kafka
from tests.conftest import SMALL_BROKER

ASK = """
import sys
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.records import TopicPartition

admin = ClusterAdmin(KafkaSettings(bootstrap_servers=sys.argv[1]))
for number in range(20):
    for position in admin.committed(f"unseen.{number}", [TopicPartition("absent", 0)]):
        assert position.offset is None
"""


@pytest.mark.exhaustive
def test_a_coordinator_that_is_just_starting_does_not_end_the_process(tmp_path: Path) -> None:
    cluster = start_kafka(tmp_path / "kafka", fast_start=True, properties=SMALL_BROKER)
    try:
        command = [sys.executable, "-c", ASK, cluster.bootstrap_servers]
        done = subprocess.run(command, capture_output=True, check=False, timeout=300, text=True)
    finally:
        cluster.kill()
    assert done.returncode == 0, (done.returncode, done.stderr)
