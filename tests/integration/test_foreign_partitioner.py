"""Joins behind topics whose producers place keys otherwise than murmur2 does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.processes.commands import Cluster, Folder, here
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.verifiers.logged import logged

TOPOLOGY = """\
application: NAME
sources:
  orders: {topic: NAME.orders, key: string, value: json}
  customers: {topic: NAME.customers, key: string, value: json, table: true}
streams:
  named:
    from: orders
    steps: [join: {with: customers, by: "builtins:max"}]
    to: {topic: NAME.named, value: json}
"""

KEYS, PARTITIONS = 80, 4
MURMUR2, CRC32 = "murmur2_random", "consistent_random"
"""The second is librdkafka's default."""


class Joined:
    """An application that joins two topics, each written with a partitioner of its own."""

    def __init__(self, servers: str, name: str, path: Path, orders: str, customers: str) -> None:
        self.name, self.folder, self._servers = name, Folder(path, servers), servers
        self.app = str(path / self.folder.write("app.yaml", TOPOLOGY.replace("NAME", name)))
        topics = {"customers": customers, "orders": orders}
        Cluster(servers).create(*(f"{name}.{t}" for t in (*topics, "named")), partitions=PARTITIONS)
        for topic, partitioner in topics.items():
            producer = feeder(servers, partitioner=partitioner)
            for number in range(KEYS):
                producer.produce(f"{name}.{topic}", b"1", f"key {number}")
            assert producer.flush(60) == 0
        self._set = ("--set", f"kafka.bootstrap_servers={servers}")
        assert here("apply", self.app, *self._set).exit_code == 0

    def findings(self) -> list[dict[str, str]]:
        patience = ("--set", "kafka.request_timeout_seconds=30")
        report = here("doctor", self.app, "--json", *self._set, *patience).json
        assert "keys of co-partitioned topics" not in str(report["findings"])
        return [found for found in report["findings"] if found["check"] == "partitioner"]

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a worker until it is caught up; return its exit code and what it wrote."""
        state = ("--set", f"state.directory={self.folder.path / 'state'}")
        done = self.folder.run("run-worker", "app.yaml", "--until-caught-up", *state, *arguments)
        return done.exit_code, done.err

    def pairs(self) -> int:
        """How many orders have found their customer."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "verifier",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        found: list[bytes | None] = []
        try:
            consumer.assign([TopicPartition(f"{self.name}.named", n, 0) for n in range(PARTITIONS)])
            ends = 0
            while ends < PARTITIONS:
                message = consumer.poll(PATIENCE_SECONDS)
                assert message is not None
                error = message.error()
                if error is None:
                    found.append(message.key())
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ends += 1
        finally:
            consumer.close()
        assert len(found) == len(set(found))
        return len(found)


def test_a_topic_whose_producers_place_keys_by_crc32_is_not_joined_in_silence(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique_name("foreign")
    joined = Joined(kafka.bootstrap_servers, name, tmp_path, CRC32, MURMUR2)
    (found,) = joined.findings()
    assert (found["severity"], found["about"]) == ("error", f"topic {name}.orders")
    assert f"of {KEYS} sampled keys (CRC32 does" in found["found"]
    assert "murmur2 gives" in found["found"]
    code, said = joined.run()
    assert code == 2
    assert f"keys of topic '{name}.orders' and of {name}.customers meet in a store" in said
    assert "set partitioner=murmur2_random in the producers" in said
    assert Cluster(kafka.bootstrap_servers).committed(name, f"{name}.orders") is None
    warn = ("--set", "worker.foreign_partitioner=warn")
    code, said = joined.run(*warn)
    assert code == 0, said
    (event,) = [event for event in logged(said) if event.get("event") == "keys_misplaced"]
    assert event["topic"] == f"{name}.orders"
    # What the refusal is for: most orders did not find the customer that is there.
    assert joined.pairs() < KEYS / 2


@pytest.mark.exhaustive  # tests of joins start workers on topics that murmur2 filled
@pytest.mark.parametrize("partitioner", [MURMUR2, CRC32])
def test_topics_whose_producers_place_keys_alike_are_joined(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path, partitioner: str
) -> None:
    name = unique_name("alike")
    joined = Joined(kafka.bootstrap_servers, name, tmp_path, partitioner, partitioner)
    assert joined.findings() == []
    code, said = joined.run()
    assert code == 0, said
    assert "keys_misplaced" not in said
    assert joined.pairs() == KEYS
