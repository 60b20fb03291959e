"""Writes by an idempotent producer without transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable, ConfigurationError, RunError
from eosframework.kafka.client.properties import Role, client_properties, new_client

FedRecord = tuple[bytes | None, bytes | None, int]
"""Key, value, and timestamp in milliseconds since the epoch."""

TURN_RECORDS = 200

SHARED_SECONDS = 5.0
"""A producer that was idle for longer is replaced before a write."""


def feed(
    settings: KafkaSettings,
    topic: str,
    records: Iterable[FedRecord],
    *,
    records_per_second: float | None = None,
    on_turn: Callable[[int], None] = lambda fed: None,
) -> int:
    """Write `records` to `topic`, partitioned by key as Java's producers do.

    Args:
        settings: how to reach the cluster.
        topic: an existing topic.
        records: in the order to write them.
        records_per_second: None: as fast as the brokers accept them.
        on_turn: called every few records with the number produced so far; may raise.

    Returns:
        The number of records that were written and confirmed.

    Raises:
        RunError: the cluster rejected a record.
    """
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    properties: dict[str, Any] = {
        **client_properties(settings, Role.PRODUCER),
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "linger.ms": 20,
    }
    producer = new_client(Producer, properties)
    started = time.monotonic()
    fed = 0
    for fed, (key, value, timestamp) in enumerate(records, 1):
        _produce(producer, topic, key, value, timestamp, delivered)
        if fed % TURN_RECORDS == 0:
            producer.poll(0)
            _require(failed, topic)
            on_turn(fed)
            if records_per_second:
                _poll_until(producer, started + fed / records_per_second)
    unsent = producer.flush(settings.request_timeout_seconds + 20)
    _require(failed, topic)
    if unsent:
        raise RunError(
            f"{unsent} records for topic {topic!r} were not taken; are the brokers at "
            f"{settings.bootstrap_servers} up?"
        )
    on_turn(fed)
    return fed


class RecordWriter:
    """Writes records one call at a time; calls that follow each other share a producer.

    librdkafka asks for a producer id as soon as a client exists. It has no connection then, and
    asks again 500 ms later (`rd_kafka_idemp_pid_timer_restart`), so that the first write of each
    producer takes half a second.

    Args:
        settings: how to reach the cluster.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producer: Producer | None = None
        self._used_at = 0.0

    def prepare(self) -> None:
        """Open the producer, so that it has its id by the first write.

        Raises:
            ConfigurationError: a librdkafka property cannot be used.
        """
        self._keep(self._take_producer())

    def write(self, topic: str, values: Mapping[str, bytes | None]) -> None:
        """Write one record per key, and wait until all in-sync replicas have them.

        Args:
            topic: receives the records.
            values: by key; None writes a tombstone.

        Raises:
            ConfigurationError: the broker rejected a record.
            ClusterUnreachable: not all records were acknowledged within the request timeout; they
                may arrive later.
        """
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                failures.append(error)

        producer = self._take_producer()  # kept only if all of this succeeds
        for key, value in values.items():
            producer.produce(topic, value, key, on_delivery=delivered)
        unsent = producer.flush(self._settings.request_timeout_seconds)
        if failures:
            raise ConfigurationError(
                f"topic {topic!r} was not written: {failures[0].str()}; allow this principal Write "
                f"and Describe on it"
            ) from KafkaException(failures[0])
        if unsent:
            raise ClusterUnreachable(
                f"topic {topic!r} at {self._settings.bootstrap_servers} did not acknowledge "
                f"{unsent} records within {self._settings.request_timeout_seconds:g} s; check that "
                f"its replicas are in sync"
            )
        self._keep(producer)

    def close(self) -> None:
        """Discard the producer; another write opens a new one."""
        self._producer = None

    def _keep(self, producer: Producer) -> None:
        self._producer, self._used_at = producer, time.monotonic()

    def _take_producer(self) -> Producer:
        kept, self._producer = self._producer, None
        # A client that was idle knows the leaders of then. If one of them is suspended, it would
        # wait for the timeout of a request; a new client asks for the leaders first.
        if kept is not None and time.monotonic() - self._used_at <= SHARED_SECONDS:
            return kept
        properties = client_properties(self._settings, Role.PRODUCER)
        return new_client(Producer, {**properties, "enable.idempotence": True, "acks": "all"})


def _poll_until(producer: Producer, moment: float) -> None:
    """Wait and serve delivery reports; one `poll` returns with the first of them."""
    while (rest_seconds := moment - time.monotonic()) > 0:
        producer.poll(rest_seconds)


def _produce(
    producer: Producer,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    timestamp: int,
    delivered: Callable[[KafkaError | None, object], None],
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=delivered, timestamp=timestamp)
            return
        except BufferError:
            producer.poll(0.05)


def _require(failed: list[KafkaError], topic: str) -> None:
    if failed:
        raise RunError(f"{len(failed)} records for topic {topic!r} were refused: {failed[0].str()}")
