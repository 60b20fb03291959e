"""Configuration of a worker's producers and consumer, from its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, Producer

from eosframework.config import Settings
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.metadata import SizeLimits
from eosframework.kafka.client.defaults import (
    PRODUCER_DEFAULTS,
    consumer_properties,
    producer_properties,
)
from eosframework.kafka.client.properties import Role, client_properties, new_client
from eosframework.kafka.client.statistics import ClientStatistics
from eosframework.kafka.consumer.group import GroupSettings, worker_client_id
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.txnid import tables_group

NOTHING_KNOWN = SizeLimits()
"""Limits of topics that are not known, or of none."""

LONGEST_LINGER_MS = 50
"""At 5 ms the broker took 3.9 to 6.5 µs of CPU for a record of 225 bytes, at 50 ms 2.5."""

LIBRDKAFKA_BATCH_BYTES = 1_000_000
"""librdkafka's own `batch.size`; it does not split a batch that a topic finds too large."""

UNKNOWN_OUTPUT_BYTES = 2**25
"""The size limit of records for a topic whose own limit is not known; the broker decides. It fits
every queue of ours, and is far below `socket.request.max.bytes`, above which a broker closes the
connection."""

LARGEST_RECORD_BYTES = 1_000_000_000
"""librdkafka's maximum of `message.max.bytes`."""

RESPONSE_BYTES = 100_000_000
"""librdkafka's own `receive.message.max.bytes`."""

LARGEST_RESPONSE_BYTES = 2**31 - 1


def producer_client(settings: Settings, limits: SizeLimits) -> dict[str, Any]:
    """Return a worker's producer properties: the user's own, and those that follow from settings.

    - A batch must fit the smallest output, or it is rejected although no record is too large.
    - A record may be as large as the largest output accepts; the queue must hold it.
    - No request may wait longer than its transaction may last.
    - A commit sends lingering records, so lingering up to half the commit interval delays nothing
      and saves the broker requests.

    Args:
        settings: of the worker.
        limits: of the topics that it writes to.
    """
    properties = client_properties(settings.kafka, Role.PRODUCER)
    if "socket.timeout.ms" not in settings.kafka.properties:
        longest_ms = round(settings.worker.transaction_timeout_seconds * 1000)
        properties["socket.timeout.ms"] = min(properties["socket.timeout.ms"], longest_ms)
    half_interval_ms = settings.worker.commit_interval_seconds * 1000 / 2
    properties.setdefault("linger.ms", min(LONGEST_LINGER_MS, half_interval_ms))
    if limits.smallest is not None:
        properties.setdefault("batch.size", min(LIBRDKAFKA_BATCH_BYTES, limits.smallest))
    record_bytes = max(limits.largest or 0, 0 if limits.are_all else UNKNOWN_OUTPUT_BYTES)
    properties.setdefault("message.max.bytes", min(record_bytes, LARGEST_RECORD_BYTES))
    queue_kilobytes = PRODUCER_DEFAULTS["queue.buffering.max.kbytes"]
    if record_bytes > queue_kilobytes * 1024:
        properties.setdefault("queue.buffering.max.kbytes", -(-record_bytes // 1024))
    return properties


def producers(
    settings: Settings, limits: SizeLimits = NOTHING_KNOWN, topics: Sequence[str] = ()
) -> ProducerPool:
    """Return outputs for use outside a worker; the caller stops them.

    Args:
        settings: how to reach the cluster, and how long a transaction may last.
        limits: of the output topics.
        topics: the output topics, as far as they are known.
    """
    return producer_pool(settings, producer_client(settings, limits), topics)


def producer_pool(
    settings: Settings,
    client: Mapping[str, Any],
    topics: Sequence[str] = (),
    statistics: ClientStatistics | None = None,
) -> ProducerPool:
    """Return outputs with the given properties of their producers.

    Args:
        settings: how to reach the cluster, and how long a transaction may last.
        client: the properties.
        topics: the output topics, as far as they are known.
        statistics: collects the producers' statistics; None: they are not collected.
    """
    return ProducerPool(
        client,
        transaction_timeout_seconds=settings.worker.transaction_timeout_seconds,
        request_timeout_seconds=settings.kafka.request_timeout_seconds,
        assume_transaction_verification=settings.kafka.assume_transaction_verification,
        topics=topics,
        statistics=statistics,
    )


def consumer_client(settings: Settings, largest_input_bytes: int | None = None) -> dict[str, Any]:
    """Return the properties of a member of an application's group.

    A broker answers with a whole batch, however large (KIP-74), which the client must accept.

    Args:
        settings: of the worker.
        largest_input_bytes: the largest max.message.bytes of its input topics; None: not known.
    """
    properties = client_properties(settings.kafka, Role.CONSUMER)
    properties["client.id"] = worker_client_id(str(properties["client.id"]))
    response_bytes = (largest_input_bytes or 0) + LIBRDKAFKA_BATCH_BYTES
    if response_bytes > RESPONSE_BYTES:
        response_bytes = min(response_bytes, LARGEST_RESPONSE_BYTES)
        properties.setdefault("receive.message.max.bytes", response_bytes)
    return properties


def group_settings(application: str, settings: Settings, instance: str | None) -> GroupSettings:
    """Return a worker's membership in its application's group."""
    return GroupSettings(
        group_id=application,
        instance=instance,
        session_timeout_seconds=settings.worker.session_timeout_seconds,
        heartbeat_interval_seconds=settings.worker.heartbeat_interval_seconds,
    )


def tables_group_settings(application: str, settings: Settings, instance: str) -> GroupSettings:
    """Return a table writer's membership in the group that assigns row topics."""
    return replace(
        group_settings(application, settings, instance), group_id=tables_group(application)
    )


def effective_producer(
    settings: Settings, limits: SizeLimits, transactional_id: str
) -> dict[str, Any]:
    """Return all properties of a task's producer.

    Raises:
        ConfigurationError: names the property that would break the guarantee.
    """
    return producer_properties(
        {
            **producer_client(settings, limits),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": round(settings.worker.transaction_timeout_seconds * 1000),
        }
    )


def effective_consumer(
    application: str, settings: Settings, largest_input_bytes: int | None = None
) -> dict[str, Any]:
    """Return all properties of a worker's consumer, without its instance name.

    Raises:
        ConfigurationError: names the property that would break the guarantee.
    """
    client = consumer_client(settings, largest_input_bytes)
    return consumer_properties(
        {**client, **group_settings(application, settings, None).properties()}
    )


def refused_properties(application: str, settings: Settings) -> list[str]:
    """Return why librdkafka rejects a worker's properties; creates clients without brokers."""
    refusals: list[str] = []
    try:
        producer = effective_producer(settings, NOTHING_KNOWN, application)
        new_client(Producer, {**producer, "bootstrap.servers": ""})
    except ConfigurationError as error:
        refusals.append(str(error))
    try:
        consumer = effective_consumer(application, settings)
        new_client(Consumer, {**consumer, "bootstrap.servers": ""}).close()
    except ConfigurationError as error:
        refusals.append(str(error))
    return refusals
