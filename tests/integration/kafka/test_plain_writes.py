"""Writes without transactions on a real broker: each rejection is reported by its meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable, ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.client.plain_writes import RecordWriter, feed

Write = Callable[[KafkaSettings, str, bytes], object]


def by_writer(settings: KafkaSettings, topic: str, value: bytes) -> None:
    RecordWriter(settings).write(topic, {"small": b"1", "key": value})


def by_feed(settings: KafkaSettings, topic: str, value: bytes) -> None:
    feed(settings, topic, [(b"small", b"1", 0), (b"key", value, 0)])


@pytest.mark.parametrize("write", [by_writer, by_feed])
@pytest.mark.parametrize(
    ("limits", "size"),
    [
        ({"max.message.bytes": "1000"}, 5_000),
        ({}, 2_000_000),
    ],
    ids=["the topic's limit", "the producer's limit"],
)
def test_a_record_that_is_too_large_is_named_and_no_permission(
    kafka: Any,
    unique_name: Callable[[str], str],
    write: Write,
    limits: dict[str, str],
    size: int,
) -> None:
    topic = unique_name("plain")
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    ClusterAdmin(settings).create_topics([TopicToCreate(topic, 1, 1, limits)])
    with pytest.raises(ConfigurationError, match=f"{topic}.*MSG_SIZE_TOO_LARGE") as caught:
        write(settings, topic, b"x" * size)
    assert "Write and Describe" not in str(caught.value)


@pytest.mark.parametrize("write", [by_writer, by_feed])
def test_brokers_that_do_not_answer_are_no_missing_permission(write: Write) -> None:
    settings = KafkaSettings(
        bootstrap_servers="127.0.0.1:9", properties={"message.timeout.ms": 1000}
    )
    with pytest.raises(ClusterUnreachable, match=r"127\.0\.0\.1:9"):
        write(settings, "out", b"1")
