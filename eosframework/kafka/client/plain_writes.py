"""Writes by an idempotent producer without transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable, ConfigurationError, EosError, RunError, worst
from eosframework.kafka.client.properties import Role, client_properties, new_client
from eosframework.kafka.taxonomy import Call, Category, classify, kafka_error

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
        ConfigurationError: the brokers reject a record.
        ClusterUnreachable: some records were not acknowledged; they may arrive later.
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
            _require(failed, topic, settings)
            on_turn(fed)
            if records_per_second:
                _poll_until(producer, started + fed / records_per_second)
    unsent = producer.flush(settings.request_timeout_seconds + 20)
    _require(failed, topic, settings, unsent)
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
            ConfigurationError: the broker rejected a record, and would again.
            ClusterUnreachable: not all records were acknowledged within the request timeout; they
                may arrive later.
            RunError: the producer can write nothing more.
        """
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                failures.append(error)

        producer = self._take_producer()  # kept only if all of this succeeds
        for key, value in values.items():
            _produce(producer, topic, key.encode(), value, 0, delivered)
        unsent = producer.flush(self._settings.request_timeout_seconds)
        _require(failures, topic, self._settings, unsent)
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
        except KafkaException as error:
            delivered(kafka_error(error), None)
            return


def _require(
    failed: Sequence[KafkaError], topic: str, settings: KafkaSettings, unsent: int = 0
) -> None:
    """Raise the worst failure, if there is one, or that records were not acknowledged in time."""
    kinds = {error.code(): error for error in failed}
    if kinds:
        raise worst([_explained(error, topic, settings) for error in kinds.values()])
    if unsent:
        raise ClusterUnreachable(
            f"topic {topic!r} at {settings.bootstrap_servers} did not acknowledge {unsent} records "
            f"within {settings.request_timeout_seconds:g} s; check that the brokers are up and "
            f"that its replicas are in sync"
        )


def _explained(error: KafkaError, topic: str, settings: KafkaSettings) -> EosError:
    """Return the failure of a record, by the meaning of its error."""
    verdict = classify(error, Call.PRODUCE)
    what = f"topic {topic!r} was not written: {verdict.name}: {verdict.meaning}"
    if (reason := error.str()) and reason != verdict.meaning:
        what = f"{what} [{reason}]"
    found: EosError
    if verdict.category is Category.INVALID_CONFIGURATION or verdict.data:
        fix = verdict.fix or f"see `eosframework explain errors {verdict.name}`"
        found = ConfigurationError(f"{what}. To fix it: {fix}")
    elif verdict.category is Category.FATAL:
        found = RunError(what)
    else:
        found = ClusterUnreachable(
            f"{what}. The record may arrive later; check the brokers at "
            f"{settings.bootstrap_servers}, and run this again"
        )
    found.__cause__ = KafkaException(error)
    return found
