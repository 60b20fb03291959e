"""Clients that provoke a broker to every error that it knows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.embedded import KafkaCluster
from eosframework.kafka.client.properties import client_properties
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.servers.acls import wait_until_known
from tests.support.servers.kafka_admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.support.servers.topics import create_topics


class Provocateur:
    """Clients of one broker, made with few words."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        settings = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
        self._base = {
            role: client_properties(settings, role) for role in ("producer", "consumer", "admin")
        }
        self._admin = AdminClient(self._base["admin"])
        self._count = 0

    def name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def producer(self, transactional_id: str | None = None, **properties: Any) -> Producer:
        own = {name.replace("_", "."): value for name, value in properties.items()}
        identity = transactional_id or self.name("id")
        return Producer({**self._base["producer"], "transactional.id": identity, **own})

    def begun(self, transactional_id: str | None = None, **properties: Any) -> Producer:
        producer = self.producer(transactional_id, **properties)
        producer.init_transactions(60)
        producer.begin_transaction()
        return producer

    def consumer(self, group: str | None = None, **properties: Any) -> Consumer:
        own = {name.replace("_", "."): value for name, value in properties.items()}
        group = group or self.name("group")
        fixed = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error"}
        return Consumer({**self._base["consumer"], **fixed, **own})

    def topic(self, partitions: int = 1, **config: str) -> str:
        name = self.name("topic")
        settings = {key.replace("_", "."): value for key, value in config.items()}
        create_topics(self._admin, [NewTopic(name, partitions, 1, config=settings)])
        return name

    def deny(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        denial = AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            operation,
            AclPermissionType.DENY,
        )
        for future in self._admin.create_acls([denial]).values():
            future.result(60)
        wait_until_known(self._admin, [denial])

    @contextmanager
    def hung(self) -> Iterator[None]:
        """The broker takes connections and answers nothing."""
        node = self.cluster.nodes[0]
        node.suspend()
        try:
            yield
        finally:
            node.resume()


def join(consumer: Consumer, topic: str) -> object:
    """Subscribe, wait for the partition, and return the group metadata."""
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not consumer.assignment():
        assert time.monotonic() < deadline, "no assignment"
        consumer.poll(0.1)
    return consumer.consumer_group_metadata()


def next_offset(topic: str, offset: int = 1, metadata: str = "") -> list[TopicPartition]:
    return [TopicPartition(topic, 0, offset, metadata)]
