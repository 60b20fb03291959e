"""Three real brokers that a test kills, stops and brings back by the role they have."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from confluent_kafka import ElectionType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.embedded import KafkaCluster
from eosframework.embedded.data_directory import live_brokers
from eosframework.embedded.node import Node
from eosframework.errors import EosError
from eosframework.kafka.inspect.coordinators import (
    TransactionDescription,
    at,
    find_transaction,
    log_partition,
)
from eosframework.kafka.inspect.formats import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    TxnState,
    coordinator_partition,
    decode_state,
    transactional_id_of,
)
from eosframework.kafka.inspect.partition_log import read_log
from eosframework.kafka.inspect.wire import Wire
from tests.support.processes import waiting
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

Answer = TypeVar("Answer")

REPLICAS = 3
IN_SYNC_AT_LEAST = 2

PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
}
"""Internal topics are made at their first use; few partitions make that quick. On a busy machine
a broker is late with its heartbeats, and none may be taken for dead but those that a test breaks.
"""

PATIENCE_SECONDS = 2 * waiting.PATIENCE_SECONDS
"""Brokers that elect leaders do not answer for a while, on a busy machine for longer."""


class Failure(StrEnum):
    """How a broker fails."""

    KILLED = "killed"
    """SIGKILL: its connections end at once."""
    STOPPED = "stopped"
    """SIGSTOP: its connections stay, and nothing answers; it does not know that it is replaced."""


class ThreeBrokers:
    """A cluster of three with the roles of its nodes, by what the brokers say.

    Args:
        cluster: runs; every topic of it is to have three replicas.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.bootstrap_servers = cluster.bootstrap_servers
        self._standing: set[int] = set()

    def node(self, node_id: int) -> Node:
        return next(node for node in self.cluster.nodes if node.id == node_id)

    def fail(self, node_id: int, failure: Failure) -> None:
        """Let a broker fail."""
        if failure is Failure.KILLED:
            self.node(node_id).kill()
            assert not self.node(node_id).running
        else:
            self.node(node_id).suspend()
            self._standing.add(node_id)

    def resume(self, node_id: int) -> None:
        """Continue a broker that stands still."""
        self.node(node_id).resume()
        self._standing.discard(node_id)

    def bring_back(self, node_id: int) -> None:
        """Continue or start a broker that failed, and wait until the cluster has it again."""
        self.resume(node_id)
        self.node(node_id).start()
        self.wait_until_in_sync()

    def restore(self) -> None:
        """Bring every broker back, with every replica in sync and the leaders spread out."""
        for node in self.cluster.nodes:
            self.resume(node.id)
        for node in self.cluster.nodes:
            node.start()
        self.wait_until_in_sync()
        admin = self._admin()
        admin.elect_leaders(ElectionType.PREFERRED, None).result(PATIENCE_SECONDS)

    def wait_until_in_sync(self) -> None:
        """Wait until all brokers know each other and every partition has all its replicas."""
        everyone = frozenset(node.id for node in self.cluster.nodes)

        def complete() -> bool:
            if not all(live_brokers(node.port) == everyone for node in self.cluster.nodes):
                return False
            topics = self._metadata().topics.values()
            partitions = [p for topic in topics for p in topic.partitions.values()]
            return all(len(p.isrs) == len(p.replicas) for p in partitions)

        wait_until(complete, "every replica in sync", PATIENCE_SECONDS)

    def leader(self, topic: str, partition: int) -> int:
        """The broker that serves a partition; a negative number while there is none."""
        return self._metadata().topics[topic].partitions[partition].leader

    def leads(self, node_id: int) -> bool:
        """Whether a broker is the leader of any partition."""
        topics = self._metadata().topics.values()
        return any(p.leader == node_id for t in topics for p in t.partitions.values())

    def in_sync(self, topic: str, partition: int) -> frozenset[int]:
        return frozenset(self._metadata().topics[topic].partitions[partition].isrs)

    def replicas(self, topic: str) -> set[int]:
        """How many replicas the partitions of a topic have."""
        return {len(p.replicas) for p in self._metadata().topics[topic].partitions.values()}

    def setting(self, topic: str, name: str) -> str | None:
        """The value of a topic's setting, its own or the brokers' default."""
        admin, resource = self._admin(), ConfigResource(ResourceType.TOPIC, topic)
        return admin.describe_configs([resource])[resource].result(60)[name].value

    def group_coordinator(self, group: str) -> int:
        return self._coordinator(CONSUMER_OFFSETS, group)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """The coordinator of an id, whether an id of this name exists or not."""
        return self._coordinator(TRANSACTION_STATE, transactional_id)

    def _coordinator(self, topic: str, key: str) -> int:
        count = len(self._metadata().topics[topic].partitions)
        return self.leader(topic, coordinator_partition(key, count))

    def transaction(self, transactional_id: str) -> TransactionDescription:
        """What its coordinator says about an id; waits for a coordinator that can say it."""
        found = self.ask(lambda wire: find_transaction(wire, transactional_id))
        assert found is not None, f"no coordinator knows {transactional_id}"
        return found

    def transactions(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
        return [self.transaction(name) for name in transactional_ids]

    def first_commit_after(self, transactional_id: str, moment: datetime) -> datetime | None:
        """When the id's first commit after a moment was decided, by its coordinator's log."""

        def read(wire: Wire) -> list[datetime]:
            log = log_partition(wire, transactional_id)
            first, end = wire.first_offsets([log])[log], wire.high_watermarks([log])[log]
            return [
                at(record.time_ms)
                for batch in read_log(wire, log, first, end)
                if not batch.is_control
                for record in batch.records()
                if record.key and transactional_id_of(record.key) == transactional_id
                if record.value and decode_state(record.value).state is TxnState.PREPARE_COMMIT
            ]

        return min((time for time in self.ask(read) if time > moment), default=None)

    def ask(self, question: Callable[[Wire], Answer]) -> Answer:
        """Ask the brokers that serve, again and again while roles move."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            settings = KafkaSettings(
                bootstrap_servers=self._serving()[0], request_timeout_seconds=10
            )
            try:
                with Wire(settings) as wire:
                    return question(wire)
            except EosError:
                if time.monotonic() > deadline:
                    raise

    def create_topic(self, topic: str) -> None:
        """Create a topic with a partition; brokers that stand still hear of it later."""

        def done() -> bool:
            # Any broker is named as the controller and passes requests on, even one that stands.
            admin = self._admin()
            request = admin.create_topics([NewTopic(topic, 1, REPLICAS)], request_timeout=1)
            try:
                request[topic].result(PATIENCE_SECONDS)
            except KafkaException as error:
                return error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            return True

        wait_until(done, f"topic {topic}", PATIENCE_SECONDS)

    def controller(self) -> int:
        """The active controller, by the newest election that a node has noted."""
        states = [
            json.loads((node.directory / "data/__cluster_metadata-0/quorum-state").read_text())
            for node in self.cluster.nodes
        ]
        return max(states, key=lambda state: state["leaderEpoch"])["leaderId"]

    def require_in_sync(self, topic: str, replicas: int) -> None:
        """Set how many replicas of a topic must be in sync for it to be written."""
        resource = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(
                    "min.insync.replicas",
                    str(replicas),
                    incremental_operation=AlterConfigOpType.SET,
                )
            ],
        )

        admin = self._admin()

        def done() -> bool:
            try:
                admin.incremental_alter_configs([resource])[resource].result(20)
            except (KafkaException, TimeoutError):
                return False
            return True

        wait_until(done, f"min.insync.replicas={replicas} of {topic}", PATIENCE_SECONDS)

    def _metadata(self) -> Any:
        answers: list[Any] = []

        def answered() -> bool:
            try:
                answers.append(self._admin().list_topics(timeout=20))
            except KafkaException:
                return False
            return True

        wait_until(answered, "the cluster's metadata", PATIENCE_SECONDS)
        return answers[-1]

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._serving()[0]})

    def _serving(self) -> list[str]:
        """Addresses of the brokers that run: one that stands still would be waited for."""
        return [
            f"127.0.0.1:{node.port}"
            for node in self.cluster.nodes
            if node.running and node.id not in self._standing
        ]
