"""Properties of a worker's clients follow from the settings and from the topics' limits."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from eosframework.config import KafkaSettings, Settings
from eosframework.kafka.admin.metadata import SizeLimits, TopicDescription, size_limits
from eosframework.kafka.consumer.group import is_worker
from eosframework.kafka.worker_clients import (
    NOTHING_KNOWN,
    UNKNOWN_OUTPUT_BYTES,
    consumer_client,
    effective_consumer,
    effective_producer,
)


def with_properties(**values: Any) -> Settings:
    named = {name.replace("_", "."): value for name, value in values.items()}
    return Settings(kafka=KafkaSettings(properties=named))


def topic(limit: int) -> TopicDescription:
    return TopicDescription(exists=True, max_message_bytes=limit)


@pytest.mark.parametrize(
    ("limits", "record_bytes", "batch_bytes", "queue_kilobytes"),
    [
        (SizeLimits(10_000, 5_000_000, are_all=True), 5_000_000, 10_000, 65_536),
        (SizeLimits(1_048_588, 1_048_588, are_all=True), 1_048_588, 1_000_000, 65_536),
        (SizeLimits(10_000, 5_000_000), UNKNOWN_OUTPUT_BYTES, 10_000, 65_536),
        (SizeLimits(10_000, 200_000_000), 200_000_000, 10_000, 195_313),
        (SizeLimits(1_000_000, 2**31 - 1, are_all=True), 10**9, 1_000_000, 2_097_152),
        (NOTHING_KNOWN, UNKNOWN_OUTPUT_BYTES, None, 65_536),
    ],
)
def test_a_record_may_be_as_large_as_an_output_takes_and_no_batch_larger_than_all_take(
    limits: SizeLimits, record_bytes: int, batch_bytes: int | None, queue_kilobytes: int
) -> None:
    properties = effective_producer(Settings(), limits, "id")
    assert properties["message.max.bytes"] == record_bytes
    assert properties.get("batch.size") == batch_bytes
    assert properties["queue.buffering.max.kbytes"] == queue_kilobytes
    Producer({**properties, "bootstrap.servers": ""})


def test_the_users_limits_win() -> None:
    settings = with_properties(
        message_max_bytes=7000, batch_size=5000, queue_buffering_max_kbytes=99
    )
    properties = effective_producer(settings, SizeLimits(10_000, 10**9, are_all=True), "id")
    assert properties["message.max.bytes"] == 7000
    assert properties["batch.size"] == 5000
    assert properties["queue.buffering.max.kbytes"] == 99


def test_limits_are_those_of_the_topics_that_tell_them() -> None:
    assert size_limits([topic(5), topic(9)]) == SizeLimits(5, 9, are_all=True)
    assert size_limits([topic(5), topic(0)]) == SizeLimits(5, 5, are_all=False)
    assert size_limits([topic(5)], are_all=False) == SizeLimits(5, 5, are_all=False)
    assert size_limits([]) == NOTHING_KNOWN


def test_a_consumer_takes_the_largest_batch_of_its_inputs() -> None:
    assert "receive.message.max.bytes" not in consumer_client(Settings(), 5_000_000)
    large = effective_consumer("app", Settings(), 200_000_000)
    assert large["receive.message.max.bytes"] == 201_000_000
    own = with_properties(receive_message_max_bytes=150_000_000)
    assert consumer_client(own, 200_000_000)["receive.message.max.bytes"] == 150_000_000


@pytest.mark.parametrize("settings", [Settings(), with_properties(client_id="shop")])
def test_client_ids_tell_workers_from_strangers_whatever_the_user_calls_them(
    settings: Settings,
) -> None:
    assert is_worker(consumer_client(settings)["client.id"])
    assert not is_worker("shop")
