"""Topics that are there for every client once they were created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    for future in admin.create_topics(list(topics)).values():
        future.result(PATIENCE_SECONDS)
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
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(PATIENCE_SECONDS)


def _is_known(admin: Any, topic: NewTopic) -> bool:
    found = admin.list_topics(topic.topic, timeout=PATIENCE_SECONDS).topics[topic.topic]
    partitions = found.partitions.values()
    return found.error is None and bool(partitions) and all(p.leader >= 0 for p in partitions)
