"""Topics that are there for every client once they were created."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tests.support.processes.waiting import PATIENCE_SECONDS, wait_until
from tests.support.servers.kafka_admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)


def create_topics(admin: Any, topics: Sequence[NewTopic]) -> None:
    """Create topics and wait until the broker's metadata has a leader for every partition.

    The controller answers once it has decided; the broker that is asked next may not know yet.

    Args:
        admin: an AdminClient.
        topics: with their numbers of partitions.
    """
    answered(lambda: admin.create_topics(list(topics)), done=KafkaError.TOPIC_ALREADY_EXISTS)
    for topic in topics:
        wait_until(lambda topic=topic: _is_known(admin, topic), f"topic {topic.topic}")


def configure(admin: Any, topic: str, values: Mapping[str, str]) -> None:
    """Change settings of a topic.

    Args:
        admin: an AdminClient.
        topic: its name.
        values: the new ones by name.
    """
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    answered(lambda: admin.incremental_alter_configs([resource]))


def answered(ask: Callable[[], Mapping[Any, Future[Any]]], done: int | None = None) -> None:
    """Send an admin request, again if its connection broke, until it is answered.

    A broker that had just started on a busy machine broke one (seen once), which may have taken
    effect.

    Args:
        ask: sends it.
        done: the error code of a request that took effect before.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    is_repeated = False
    while True:
        try:
            for future in ask().values():
                try:
                    future.result(PATIENCE_SECONDS)
                except KafkaException as error:
                    if not (is_repeated and error.args[0].code() == done):
                        raise
        except KafkaException as error:
            broke = error.args[0].code() == KafkaError._TRANSPORT
            if not broke or time.monotonic() > deadline:
                raise
            is_repeated = True
        else:
            return


def _is_known(admin: Any, topic: NewTopic) -> bool:
    found = admin.list_topics(topic.topic, timeout=PATIENCE_SECONDS).topics[topic.topic]
    partitions = found.partitions.values()
    return found.error is None and bool(partitions) and all(p.leader >= 0 for p in partitions)
