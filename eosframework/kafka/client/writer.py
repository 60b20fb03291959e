"""Acknowledged writes outside transactions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable, ConfigurationError
from eosframework.kafka.client.properties import Role, client_properties, new_client


def write_records(settings: KafkaSettings, topic: str, values: Mapping[str, bytes | None]) -> None:
    """Write one record per key, and wait until all in-sync replicas have them.

    Args:
        settings: how to reach the cluster.
        topic: receives the records.
        values: by key; None writes a tombstone.

    Raises:
        ConfigurationError: the broker rejected a record.
        ClusterUnreachable: not all records were acknowledged within the request timeout.
    """
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    properties = client_properties(settings, Role.PRODUCER)
    producer = new_client(Producer, {**properties, "enable.idempotence": True, "acks": "all"})
    for key, value in values.items():
        producer.produce(topic, value, key, on_delivery=delivered)
    unsent = producer.flush(settings.request_timeout_seconds)
    if failures:
        raise ConfigurationError(
            f"topic {topic!r} was not written: {failures[0].str()}; allow this principal Write "
            f"and Describe on it"
        ) from KafkaException(failures[0])
    if unsent:
        raise ClusterUnreachable(
            f"topic {topic!r} at {settings.bootstrap_servers} did not acknowledge {unsent} records "
            f"within {settings.request_timeout_seconds:g} s; check that its replicas are in sync"
        )


def auto_create(settings: KafkaSettings, topics: Sequence[str], within_seconds: float) -> None:
    """Request topics' metadata as a producer does, so that brokers may auto-create them.

    Args:
        settings: how to reach the cluster.
        topics: requested in order, until a request fails.
        within_seconds: no request begins later.
    """
    producer = new_client(Producer, client_properties(settings, Role.PRODUCER))
    deadline = time.monotonic() + within_seconds
    for topic in topics:
        if time.monotonic() >= deadline:
            return
        try:
            producer.list_topics(topic, timeout=settings.request_timeout_seconds)
        except KafkaException:
            return
