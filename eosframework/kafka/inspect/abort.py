"""Ends an open transaction from outside, in one of two ways.

- *Taking the id over* (InitProducerId) makes its coordinator abort the transaction everywhere and
  fences its producer. It is used for every transaction that a coordinator knows.
- *Writing the abort marker* into one partition (KIP-664) ends a transaction that no coordinator
  knows. If a coordinator did know it, that would tear the transaction: the other partitions could
  still be committed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from eosframework.config import KafkaSettings
from eosframework.errors import (
    ClusterUnreachable,
    ConfigurationError,
    OutcomeUnknown,
    Retriable,
    TransactionError,
)
from eosframework.kafka.client.properties import Role, client_properties
from eosframework.kafka.inspect.coordinators import (
    ActiveProducer,
    TransactionDescription,
    describe_transaction,
)
from eosframework.kafka.inspect.formats import State
from eosframework.kafka.inspect.hanging import Health, judge, open_producers, remaining
from eosframework.kafka.inspect.vendor import errors, producer_protocol
from eosframework.kafka.inspect.wire import Wire
from eosframework.kafka.producer.transactional import TransactionalProducer
from eosframework.records import TopicPartition


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Abort a transaction by taking its id, which fences its producer."""

    described: TransactionDescription

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of the abort, for display."""
        found = self.described
        places = ", ".join(map(str, found.partitions)) or "no partition"
        return (
            f"take transactional id {found.transactional_id!r} over (InitProducerId): its producer "
            f"{found.producer_id} with epoch {found.producer_epoch} is fenced, and its process "
            f"ends or starts anew",
            f"its coordinator {found.coordinator_id} then writes abort markers into {places}",
        )


@dataclass(frozen=True, slots=True)
class WriteMarker:
    """Abort a producer's open transaction in one partition by writing the marker."""

    producer: ActiveProducer

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of the abort, for display."""
        producer = self.producer
        return (
            f"write an abort marker for producer {producer.producer_id} with epoch "
            f"{producer.producer_epoch} into {producer.partition} (WriteTxnMarkers): its records "
            f"from offset {producer.start_offset} on stay invisible",
        )


Plan = TakeOver | WriteMarker


def plan_by_id(
    wire: Wire, transactional_id: str, *, force: bool = False, now: datetime | None = None
) -> TakeOver:
    """Return the way to abort the open transaction of an id.

    Raises:
        ConfigurationError: the id is unknown, it has no open transaction, its end is decided
            already, or it is healthy and `force` is not given.
    """
    described = describe_transaction(wire, transactional_id)
    if not described.is_open:
        raise ConfigurationError(
            f"transactional id {transactional_id!r} has no open transaction (state "
            f"{described.state}), so there is nothing to abort; `eosframework txn hanging` shows "
            f"what else holds readers back"
        )
    _refuse_decided(described)
    moment = now or datetime.now(UTC)
    if not force and not described.is_overdue(moment):
        raise _healthy(described, moment)
    return TakeOver(described)


def plan_by_producer(
    wire: Wire,
    partition: TopicPartition,
    producer_id: int,
    *,
    force: bool = False,
    now: datetime | None = None,
) -> Plan:
    """Return the way to abort a producer's open transaction in a partition.

    Raises:
        ConfigurationError: it has none there, or as `plan_by_id`.
    """
    if partition not in wire.leaders([partition.topic]):
        raise ConfigurationError(f"{partition} does not exist; correct --topic and --partition")
    found = open_producers(wire, [partition])
    chosen = [producer for producer in found if producer.producer_id == producer_id]
    judged = judge(wire, chosen, now=now)
    if not judged:
        others = ", ".join(str(producer.producer_id) for producer in found)
        raise ConfigurationError(
            f"producer {producer_id} has no open transaction in {partition}; "
            + (f"producers that have one: {others}" if others else "no producer has one")
        )
    ((producer, described, health),) = judged
    if described is None or health is Health.UNKNOWN:
        return WriteMarker(producer)
    _refuse_decided(described)
    if health is Health.HEALTHY and not force:
        raise _healthy(described, now or datetime.now(UTC))
    return TakeOver(described)


def perform(wire: Wire, settings: KafkaSettings, plan: Plan) -> str:
    """Abort as planned, wait until it is done, and return the resulting state.

    Raises:
        ConfigurationError: this principal may not, or another transaction is open by now.
        ClusterUnreachable: it was not done within the deadline.
    """
    if isinstance(plan, TakeOver):
        return _take_over(wire, settings, plan.described)
    return _write_marker(wire, settings, plan.producer)


def _refuse_decided(described: TransactionDescription) -> None:
    if described.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
        raise ConfigurationError(
            f"the transaction of {described.transactional_id!r} is decided ({described.state}) "
            f"and only its markers are missing; nothing can change the decision. If it stays so, "
            f"see to it that the leaders of {', '.join(map(str, described.partitions))} are up"
        )


def _healthy(described: TransactionDescription, now: datetime) -> ConfigurationError:
    left = max(remaining(described, now).total_seconds(), 0)
    return ConfigurationError(
        f"the transaction of {described.transactional_id!r} is healthy: its coordinator aborts it "
        f"by itself in {left:.0f} s, unless its producer ends it before. Wait, or give --force to "
        f"fence the producer now"
    )


def _take_over(wire: Wire, settings: KafkaSettings, described: TransactionDescription) -> str:
    transactional_id = described.transactional_id
    # 1. the plan is shown  2. the producer commits, and begins its next transaction  3. the user
    # confirms. The start and the epoch show that it is another one. A commit between this look
    # and the init below wins: its coordinator has decided it, and the init only fences.
    current = describe_transaction(wire, transactional_id)
    if (current.started, current.producer_epoch) != (described.started, described.producer_epoch):
        raise ConfigurationError(
            f"the transaction of {transactional_id!r} ended meanwhile; nothing was done"
        )
    properties = {
        **client_properties(settings, Role.PRODUCER),
        "transactional.id": transactional_id,
        # The id keeps the timeout that its owner chose.
        "transaction.timeout.ms": round(described.timeout.total_seconds() * 1000),
    }
    try:
        # Nothing is produced, so there is nothing to protect from stragglers.
        with TransactionalProducer(properties, protection=False) as producer:
            producer.init_transactions(settings.request_timeout_seconds)
    except (Retriable, OutcomeUnknown) as error:
        raise ClusterUnreachable(f"it is not known whether it was aborted: {error}") from error
    except TransactionError as error:
        raise ConfigurationError(f"nothing was aborted: {error}") from error
    after = describe_transaction(wire, transactional_id)
    return (
        f"aborted: {transactional_id!r} is {after.state}, producer {after.producer_id} with epoch "
        f"{after.producer_epoch}"
    )


def _write_marker(wire: Wire, settings: KafkaSettings, producer: ActiveProducer) -> str:
    marker = producer_protocol.WriteTxnMarkersRequest.WritableTxnMarker
    partition = producer.partition
    request = producer_protocol.WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=False,
                topics=[
                    marker.WritableTxnMarkerTopic(
                        name=partition.topic, partition_indexes=[partition.partition]
                    )
                ],
                # Brokers reject an epoch older than that of the partition's last marker.
                coordinator_epoch=producer.coordinator_epoch or 0,
            )
        ]
    )

    def write() -> None:
        answer: Any = wire.send(request, wire.leaders([partition.topic])[partition])
        for written in answer.markers:
            for topic in written.topics:
                for entry in topic.partitions:
                    if entry.error_code:
                        raise errors.for_code(entry.error_code)(str(partition))

    wire.call(f"writing an abort marker into {partition}", "Alter on the cluster", write)
    _wait_until_closed(wire, settings, producer)
    return f"aborted: producer {producer.producer_id} has no open transaction in {partition}"


def _wait_until_closed(wire: Wire, settings: KafkaSettings, producer: ActiveProducer) -> None:
    deadline = time.monotonic() + settings.request_timeout_seconds
    while any(
        (found.producer_id, found.start_offset) == (producer.producer_id, producer.start_offset)
        for found in open_producers(wire, [producer.partition])
    ):
        if time.monotonic() > deadline:
            raise ClusterUnreachable(
                f"the abort marker was written into {producer.partition}, but its leader still "
                f"has the transaction open; are its replicas in sync?"
            )
        time.sleep(0.05)
