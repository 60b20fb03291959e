"""Transactional ids and producers as coordinators and partition leaders report them now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from eosframework.errors import ConfigurationError, RunError
from eosframework.kafka.inspect.formats import (
    OPEN_STATES,
    TRANSACTION_STATE,
    TxnState,
    coordinator_partition,
)
from eosframework.kafka.inspect.vendor import admin_protocol, errors, metadata_protocol, structs
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition
from eosframework.txnid import TransactionalId, prefix

LATE = timedelta(seconds=15)
"""Tolerance: a coordinator aborts expired transactions every 10 s by default, and clocks differ."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id that a coordinator knows.

    Args:
        lease: the task that holds a lease of the id; None: the id is not leased.
    """

    transactional_id: str
    state: TxnState
    producer_id: int
    coordinator_id: int
    lease: TransactionalId | None = None

    @property
    def owner(self) -> TransactionalId | None:
        """The task that owns the id; None: it is not an id of eosframework's."""
        return self.lease or owner(self.transactional_id)


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A coordinator's description of a transactional id.

    Args:
        started: the start of its open transaction; None: none is open.
        partitions: of the open transaction.
        lease: the task that holds a lease of the id; None: the id is not leased.
    """

    transactional_id: str
    state: TxnState
    producer_id: int
    producer_epoch: int
    coordinator_id: int
    timeout: timedelta
    started: datetime | None
    partitions: tuple[TopicPartition, ...]
    lease: TransactionalId | None = None

    @property
    def owner(self) -> TransactionalId | None:
        """The task that owns the id; None: it is not an id of eosframework's."""
        return self.lease or owner(self.transactional_id)

    @property
    def is_open(self) -> bool:
        """True if a transaction is open or is being ended."""
        return self.state in OPEN_STATES

    def open_for(self, now: datetime) -> timedelta | None:
        """Return the age of the open transaction; None: none is open."""
        return now - self.started if self.is_open and self.started else None

    def is_overdue(self, now: datetime) -> bool:
        """Return whether the coordinator should have ended the transaction long ago."""
        duration = self.open_for(now)
        return duration is not None and duration > self.timeout + LATE


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A partition leader's state of one producer.

    Args:
        coordinator_epoch: of its last marker in the partition; None: it has had none.
        start_offset: the first offset of its open transaction; None: none is open there.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    last_write: datetime | None
    start_offset: int | None


def owner(transactional_id: str) -> TransactionalId | None:
    """Return the task whose derived id it is; None: it is not one of eosframework's."""
    try:
        return TransactionalId.parse(transactional_id)
    except ConfigurationError:
        return None


def at(milliseconds: int) -> datetime:
    """Return the time of Kafka's milliseconds since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def list_transactions(
    wire: Wire,
    *,
    states: Collection[TxnState] = (),
    producer_ids: Collection[int] = (),
) -> list[TransactionListing]:
    """Return the ids that the coordinators know, filtered by state and producer.

    Brokers silently omit the ids that this principal may not describe: see `require_authority`.

    Args:
        wire: to the cluster.
        states: empty: all.
        producer_ids: empty: all.
    """
    request = admin_protocol.ListTransactionsRequest(
        state_filters=[str(state) for state in states], producer_id_filters=list(producer_ids)
    )

    def ask() -> list[TransactionListing]:
        return [
            TransactionListing(
                transactional_id=entry.transactional_id,
                state=_state(entry.transaction_state),
                producer_id=entry.producer_id,
                coordinator_id=broker_id,
                lease=wire.leases.get(entry.transactional_id),
            )
            for broker_id in wire.brokers()
            for entry in _checked(wire.send(request, broker_id)).transaction_states
        ]

    needs = "Describe on the cluster's TransactionalIds"
    listed = wire.call("listing transactions at every broker", needs, ask)
    return sorted(listed, key=lambda entry: entry.transactional_id)


def describe_transaction(wire: Wire, transactional_id: str) -> TransactionDescription:
    """Return its coordinator's description of an id.

    Raises:
        ConfigurationError: no coordinator knows it, or this principal may not describe it.
    """
    found = find_transaction(wire, transactional_id)
    if found is None:
        raise ConfigurationError(
            f"transactional id {transactional_id!r} is unknown to its coordinator: it was never "
            f"used here, or not for as long as transactional.id.expiration.ms; "
            f"`eosframework txn list` shows those that are known"
        )
    return found


def require_authority(wire: Wire, application: str | None = None) -> None:
    """Raise unless this principal may describe all ids, or all of one application.

    It describes an unused id: brokers answer differently for a hidden id and an unknown one.
    """
    probe = TransactionalId.make(application or "eosframework", "txn.probe", 0)
    whose = f"those that start with '{prefix(application)}'" if application else "*"
    find_transaction(wire, str(probe), needs=f"Describe on TransactionalId {whose}")


def find_transaction(
    wire: Wire, transactional_id: str, *, needs: str | None = None
) -> TransactionDescription | None:
    """Return its coordinator's description of an id; None: the coordinator does not know it.

    Args:
        wire: to the cluster.
        transactional_id: the id.
        needs: the permission to name if it is missing; None: the one for this id.

    Raises:
        ConfigurationError: this principal may not describe it.
    """

    def ask() -> TransactionDescription | None:
        coordinator_id = coordinator_of(wire, transactional_id)
        request = admin_protocol.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (entry,) = wire.send(request, coordinator_id).transaction_states
        if entry.error_code == errors.TransactionalIdNotFoundError.errno:
            return None
        described = _described(_checked(entry), coordinator_id)
        return replace(described, lease=wire.leases.get(transactional_id))

    return wire.call(
        "describing transactional ids" if needs else f"describing {transactional_id!r}",
        needs or f"Describe on TransactionalId {transactional_id}",
        ask,
    )


def active_producers(wire: Wire, partitions: Iterable[TopicPartition]) -> list[ActiveProducer]:
    """Return the producers that the leaders of these partitions know.

    Raises:
        ConfigurationError: this principal may not read one of the topics.
    """
    wanted = sorted(set(partitions))
    if not wanted:
        return []
    topics = sorted({partition.topic for partition in wanted})
    answers: Any = wire.call_for_existing(
        "asking for the producers of",
        f"Read on {', '.join(f'Topic {topic}' for topic in topics)}",
        wanted,
        lambda left: wire.describe_producers([structs.TopicPartition(*each) for each in left]),
    )
    return [
        ActiveProducer(
            partition=TopicPartition(*partition),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=_known(producer.coordinator_epoch),
            last_write=at(producer.last_timestamp) if producer.last_timestamp >= 0 else None,
            start_offset=_known(producer.current_transaction_start_offset),
        )
        for partition, state in sorted(answers.items())
        for producer in state.active_producers
    ]


def coordinator_of(wire: Wire, transactional_id: str) -> int | None:
    """Return the coordinator's broker, looked up each time because it may have moved."""
    request = metadata_protocol.FindCoordinatorRequest(
        key_type=metadata_protocol.CoordinatorType.TRANSACTION.value,
        coordinator_keys=[transactional_id],
        min_version=4,
    )
    (found,) = wire.send(request).coordinators
    return _checked(found).node_id


def require_all_coordinators(wire: Wire) -> None:
    """Raise if coordinators are unavailable: their transactions would be missing from a list."""
    leaders = wire.leaders([TRANSACTION_STATE])
    if offline := [partition for partition, leader in leaders.items() if leader is None]:
        raise RunError(
            f"{', '.join(map(str, offline))} has no leader, so the transactions it keeps are not "
            f"known; start the brokers that have its replicas"
        )


def log_partition(wire: Wire, transactional_id: str) -> TopicPartition:
    """Return the partition of `__transaction_state` that stores an id's states."""
    count = len(wire.leaders([TRANSACTION_STATE]))
    if not count:
        raise ConfigurationError(
            f"topic {TRANSACTION_STATE!r} does not exist: no transaction was made on this cluster"
        )
    return TopicPartition(TRANSACTION_STATE, coordinator_partition(transactional_id, count))


def _described(entry: Any, coordinator_id: int | None) -> TransactionDescription:
    started = entry.transaction_start_time_ms
    partitions = [
        TopicPartition(topic.topic, number) for topic in entry.topics for number in topic.partitions
    ]
    return TransactionDescription(
        transactional_id=entry.transactional_id,
        state=_state(entry.transaction_state),
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        coordinator_id=coordinator_id or 0,
        timeout=timedelta(milliseconds=entry.transaction_timeout_ms),
        started=at(started) if started >= 0 else None,
        partitions=tuple(sorted(partitions)),
    )


def _state(name: str) -> TxnState:
    try:
        return TxnState(name)
    except ValueError as error:
        raise RunError(
            f"a coordinator answered with the state {name!r}, which this eosframework does not "
            f"know; install a newer one"
        ) from error


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _checked(answer: Any) -> Any:
    """Return an answer without an error, else raise that error as kafka-python names it."""
    if answer.error_code:
        raise errors.for_code(answer.error_code)(getattr(answer, "error_message", None) or "")
    return answer
