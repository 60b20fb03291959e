"""Topics that are deleted and created again under an application, as fast as the broker allows."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tests.support.processes.waiting import PATIENCE_SECONDS, wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics


def topic_id(servers: str, topic: str) -> str:
    """The id of a topic that exists."""
    admin = AdminClient({"bootstrap.servers": servers})
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result(60).topic_id)


def make_anew(servers: str, topic: str, config: Mapping[str, str]) -> tuple[str, str]:
    """Delete a topic and create it with as many partitions; return the id before and after."""
    admin = AdminClient({"bootstrap.servers": servers})
    before = topic_id(servers, topic)
    partitions = len(admin.list_topics(topic, timeout=60).topics[topic].partitions)
    admin.delete_topics([topic])[topic].result(PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            create_topics(admin, [NewTopic(topic, partitions, 1, config=dict(config))])
            break
        except KafkaException:  # It exists for a moment longer.
            assert time.monotonic() < deadline, f"{topic} is not deleted"
    wait_until(lambda: topic_id(servers, topic) != before, "the new topic")
    return before, topic_id(servers, topic)
