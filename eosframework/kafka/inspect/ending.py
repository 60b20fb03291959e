"""Ends an open transaction from outside, in one of two ways.

- *Taking the id over* (InitProducerId) makes its coordinator abort the transaction everywhere and
  fences its producer. It is used for every transaction that a coordinator has open.
- *Writing the marker* into one partition (KIP-664) ends a transaction that no coordinator has open
  there. The marker has the outcome in the coordinators' log (`decisions`): another one would tear
  the transaction, because other partitions, and readers that were faster, have that outcome.
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
from eosframework.kafka.inspect.decisions import Verdict
from eosframework.kafka.inspect.formats import TxnState
from eosframework.kafka.inspect.hanging import (
    Health,
    judge,
    marker_command,
    open_producers,
    remaining,
    verdict_on,
)
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
    """End a producer's open transaction in one partition by writing the marker.

    Args:
        is_committed: the outcome that the marker gives.
        reason: for that outcome.
    """

    producer: ActiveProducer
    is_committed: bool
    reason: str

    @property
    def word(self) -> str:
        """The outcome, for display."""
        return "commit" if self.is_committed else "abort"

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps, for display."""
        producer = self.producer
        effect = "become visible" if self.is_committed else "stay invisible"
        return (
            f"write {_marker(self.word)} for producer {producer.producer_id} with epoch "
            f"{producer.producer_epoch} into {producer.partition} (WriteTxnMarkers): its records "
            f"from offset {producer.start_offset} on {effect}; {self.reason}",
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
    return _take_over_plan(wire, described, now or datetime.now(UTC), force=force)


def plan_by_producer(
    wire: Wire,
    partition: TopicPartition,
    producer_id: int,
    *,
    commit: bool | None = None,
    force: bool = False,
    now: datetime | None = None,
) -> Plan:
    """Return the way to end a producer's open transaction in a partition.

    Args:
        wire: to the cluster.
        partition: where it is open.
        producer_id: of the producer.
        commit: the expected outcome; None: the one that the coordinators' log has.
        force: abort a healthy one; give one whose outcome is unknown the expected outcome.
        now: for tests.

    Raises:
        ConfigurationError: it has none there, the log has another outcome or may have lost it, or
            as `plan_by_id`.
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
    if health is Health.UNKNOWN:
        verdict = verdict_on(wire, producer, described)
        is_committed = _outcome(producer, verdict, commit if force else None)
        if commit is not None and commit is not is_committed:
            raise ConfigurationError(
                f"the transaction of producer {producer_id} in {partition} must not be "
                f"{'committed' if commit else 'aborted'}: {verdict.reason}. End it with "
                f"`{marker_command(producer, verdict)}`"
            )
        return WriteMarker(producer, is_committed, verdict.reason)
    assert described is not None, "its coordinator knows it"
    if commit:
        raise ConfigurationError(
            f"the transaction of {described.transactional_id!r} is open ({described.state}): only "
            f"its producer can commit it"
        )
    return _take_over_plan(wire, described, now or datetime.now(UTC), force=force)


def perform(wire: Wire, settings: KafkaSettings, plan: Plan) -> str:
    """End a transaction as planned, wait until it is done, and return the resulting state.

    Raises:
        ConfigurationError: this principal may not, or another transaction is open by now.
        ClusterUnreachable: it was not done within the deadline.
    """
    if isinstance(plan, TakeOver):
        return _take_over(wire, settings, plan.described)
    return _write_marker(wire, settings, plan)


def _outcome(producer: ActiveProducer, verdict: Verdict, wanted: bool | None) -> bool:
    """Return the outcome of a verdict, or the wanted one if there is none.

    Raises:
        ConfigurationError: there is neither.
    """
    is_committed = wanted if verdict.is_committed is None else verdict.is_committed
    if is_committed is None:
        raise ConfigurationError(
            f"the outcome of the transaction of producer {producer.producer_id} in "
            f"{producer.partition} is unknown: {verdict.reason}. Find out in the other topics of "
            f"the transaction whether its records are there, and end it alike: "
            f"`{marker_command(producer, verdict)}`"
        )
    return is_committed


def _take_over_plan(
    wire: Wire, described: TransactionDescription, now: datetime, *, force: bool
) -> TakeOver:
    _refuse_decided(described)
    if not force and not described.is_overdue(now):
        raise _healthy(described, now)
    _refuse_earlier_commits(wire, described)
    return TakeOver(described)


def _refuse_earlier_commits(wire: Wire, described: TransactionDescription) -> None:
    """Refuse to abort the records of an earlier transaction along with the open one.

        1. a transaction is committed, and its marker in a partition omitted
        2. the producer's next transaction writes into that partition
        3. one marker ends both there

    Raises:
        ConfigurationError: the abort would take committed records along.
    """
    leaders = wire.leaders({partition.topic for partition in described.partitions})
    present = [p for p in described.partitions if leaders.get(p) is not None]
    for producer in open_producers(wire, present):
        if producer.producer_id != described.producer_id:
            continue
        verdict = verdict_on(wire, producer, described)
        if any(candidate.is_committed for candidate in verdict.candidates):
            raise ConfigurationError(
                f"the open transaction of {described.transactional_id!r} must not be aborted: the "
                f"marker would also abort earlier records of its producer in {producer.partition} "
                f"({verdict.reason}). Let its producer commit"
            )


def _refuse_decided(described: TransactionDescription) -> None:
    if described.state in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT):
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


def _write_marker(wire: Wire, settings: KafkaSettings, plan: WriteMarker) -> str:
    producer = plan.producer
    partition = producer.partition
    # 1. the plan is shown  2. the producer's next transaction writes into the partition  3. the
    # user confirms, and the marker ends that one as well. Such a write changes the plan.
    commit, number = plan.is_committed, producer.producer_id
    if plan_by_producer(wire, partition, number, commit=commit, force=True) != plan:
        raise ConfigurationError(
            f"the open transaction of producer {number} in {partition} changed meanwhile; nothing "
            f"was done"
        )
    marker = producer_protocol.WriteTxnMarkersRequest.WritableTxnMarker
    request = producer_protocol.WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=plan.is_committed,
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

    what = f"writing {_marker(plan.word)} into {partition}"
    wire.call(what, "Alter on the cluster", write)
    _wait_until_closed(wire, settings, producer)
    done = "committed" if plan.is_committed else "aborted"
    return f"{done}: producer {number} has no open transaction in {partition}"


def _marker(word: str) -> str:
    return f"{'an' if word == 'abort' else 'a'} {word} marker"


def _wait_until_closed(wire: Wire, settings: KafkaSettings, producer: ActiveProducer) -> None:
    deadline = time.monotonic() + settings.request_timeout_seconds
    while any(
        (found.producer_id, found.start_offset) == (producer.producer_id, producer.start_offset)
        for found in open_producers(wire, [producer.partition])
    ):
        if time.monotonic() > deadline:
            raise ClusterUnreachable(
                f"the marker was written into {producer.partition}, but its leader still "
                f"has the transaction open; are its replicas in sync?"
            )
        time.sleep(0.05)
