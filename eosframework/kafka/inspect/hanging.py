"""Detection of hanging transactions: they block readers, and no coordinator will end them.

1. Ask the leaders which producers have a transaction open in a partition, and since which offset.
2. Ask the coordinators which ids have these producers, and whether they know the partition.
3. Ask the leaders again: a transaction is hanging only if it is open both times; the rest ended
   meanwhile.
4. Read in the coordinators' log how a hanging one was decided (`decisions`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from eosframework.errors import ConfigurationError
from eosframework.kafka.inspect.coordinators import (
    ActiveProducer,
    TransactionDescription,
    active_producers,
    find_transaction,
    list_transactions,
    require_all_coordinators,
    require_authority,
)
from eosframework.kafka.inspect.decisions import Verdict, decide
from eosframework.kafka.inspect.formats import TxnState
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition


class Health(StrEnum):
    """Prospects of an open transaction."""

    HEALTHY = "healthy"
    OVERDUE = "overdue"
    UNKNOWN = "unknown"

    @property
    def meaning(self) -> str:
        """Explanation of the value."""
        return _MEANINGS[self]


_MEANINGS = {
    Health.HEALTHY: "its coordinator knows it, and ends it at the latest when its timeout is over",
    Health.OVERDUE: "its coordinator knows it, but has not ended it although its timeout is over",
    Health.UNKNOWN: "no coordinator has it open, so none will end it",
}


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A producer's open transaction in one partition, whose readers wait before `start_offset`.

    Args:
        described: the description of the producer's id; None: no coordinator knows it.
        verdict: the outcome that it must get; None: its coordinator decides.
    """

    producer: ActiveProducer
    start_offset: int
    last_stable_offset: int
    high_watermark: int
    described: TransactionDescription | None
    health: Health
    verdict: Verdict | None

    @property
    def partition(self) -> TopicPartition:
        """The partition in which it is open."""
        return self.producer.partition

    @property
    def held_back(self) -> int:
        """Number of offsets that `read_committed` readers of the partition cannot reach."""
        return self.high_watermark - self.last_stable_offset


@dataclass(frozen=True, slots=True)
class Findings:
    """Open transactions of the cluster.

    Args:
        open_transactions: in partitions, whatever their health.
        overdue: transactions past their timeouts that block no partition.
    """

    open_transactions: tuple[OpenTransaction, ...]
    overdue: tuple[TransactionDescription, ...]

    @property
    def hanging(self) -> tuple[OpenTransaction, ...]:
        """The open transactions that are not healthy."""
        return tuple(o for o in self.open_transactions if o.health is not Health.HEALTHY)


@dataclass(frozen=True, slots=True)
class Lag:
    """Distance between a partition's last stable offset and its high watermark."""

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int

    @property
    def offsets(self) -> int:
        """Number of offsets that `read_committed` readers cannot reach."""
        return self.high_watermark - self.last_stable_offset


def lags(wire: Wire, partitions: Iterable[TopicPartition]) -> list[Lag]:
    """Return how far each partition's readers are held back; a deleted topic has no entry."""
    wanted = set(partitions)
    leaders = wire.leaders({partition.topic for partition in wanted})
    readable = sorted(p for p in wanted if leaders.get(p) is not None)
    # Read last, so that the lag is never negative.
    stable = wire.last_stable_offsets(readable)
    ends = wire.high_watermarks(readable)
    return [
        Lag(each, stable[each], ends[each]) for each in readable if each in ends.keys() & stable
    ]


def find_open(wire: Wire, topics: Collection[str] = (), *, now: datetime | None = None) -> Findings:
    """Return the open transactions of these topics, or of all, with their health.

    Args:
        wire: to the cluster.
        topics: empty: all that this principal may see, internal ones too.
        now: for tests.

    Raises:
        ConfigurationError: a topic does not exist, or this principal may not see enough.
    """
    leaders = wire.leaders(topics or None)
    for topic in topics:
        if not any(partition.topic == topic for partition in leaders):
            raise ConfigurationError(
                f"topic {topic!r} does not exist on this cluster; correct --topic"
            )
    blocked = {lag.partition: lag for lag in lags(wire, leaders) if lag.offsets}
    found = judge(wire, open_producers(wire, blocked), now=now)
    held = [
        OpenTransaction(
            producer=producer,
            start_offset=producer.start_offset or 0,
            last_stable_offset=blocked[producer.partition].last_stable_offset,
            high_watermark=blocked[producer.partition].high_watermark,
            described=described,
            health=health,
            verdict=verdict_on(wire, producer, described) if health is Health.UNKNOWN else None,
        )
        for producer, described, health in found
    ]
    overdue = () if topics else _overdue(wire, now or datetime.now(UTC))
    holding = {o.described.transactional_id for o in held if o.described}
    return Findings(
        open_transactions=tuple(held),
        overdue=tuple(entry for entry in overdue if entry.transactional_id not in holding),
    )


def open_producers(wire: Wire, partitions: Iterable[TopicPartition]) -> list[ActiveProducer]:
    """Return the producers with an open transaction in these partitions."""
    found = active_producers(wire, partitions)
    return [producer for producer in found if producer.start_offset is not None]


Judged = tuple[ActiveProducer, TransactionDescription | None, Health]


def judge(
    wire: Wire, producers: Sequence[ActiveProducer], *, now: datetime | None = None
) -> list[Judged]:
    """Return the producers that are still open, with their coordinator's description.

    Raises:
        ConfigurationError: this principal may not describe all ids, so a hidden id cannot be
            distinguished from one that does not exist.
    """
    if not producers:
        return []
    known: dict[int, TransactionDescription] = {}
    for listed in list_transactions(wire, producer_ids={p.producer_id for p in producers}):
        if described := find_transaction(wire, listed.transactional_id):
            known[described.producer_id] = described
    judged = [_judged(producer, known.get(producer.producer_id), now) for producer in producers]
    if any(described is None for _, described, _ in judged):
        require_authority(wire)
        require_all_coordinators(wire)
    if all(health is Health.HEALTHY for _, _, health in judged):
        return judged
    # 1. a partition's leader lists a producer as open  2. the transaction ends, and its markers
    # are written  3. its coordinator no longer knows it, or knows the next one. Judged by 1 and 3
    # it hangs; so only producers count that the leaders still list with the same first offset.
    still = {
        (p.partition, p.producer_id, p.start_offset)
        for p in open_producers(wire, {p.partition for p in producers})
    }
    return [
        entry
        for entry in judged
        if entry[2] is Health.HEALTHY
        or (entry[0].partition, entry[0].producer_id, entry[0].start_offset) in still
    ]


def _judged(
    producer: ActiveProducer, described: TransactionDescription | None, now: datetime | None
) -> Judged:
    if described is None or not described.is_open:
        return producer, described, Health.UNKNOWN
    if producer.partition not in described.partitions:
        return producer, described, Health.UNKNOWN
    overdue = described.is_overdue(now or datetime.now(UTC))
    return producer, described, Health.OVERDUE if overdue else Health.HEALTHY


def _overdue(wire: Wire, now: datetime) -> tuple[TransactionDescription, ...]:
    listed = list_transactions(
        wire,
        states=(
            TxnState.ONGOING,
            TxnState.PREPARE_COMMIT,
            TxnState.PREPARE_ABORT,
        ),
    )
    described = [find_transaction(wire, entry.transactional_id) for entry in listed]
    return tuple(entry for entry in described if entry and entry.is_overdue(now))


def remaining(described: TransactionDescription, now: datetime) -> timedelta:
    """Return the time until the coordinator aborts an open transaction by itself."""
    return described.timeout - (described.open_for(now) or timedelta(0))


def verdict_on(
    wire: Wire, producer: ActiveProducer, described: TransactionDescription | None
) -> Verdict:
    """Return the outcome that a producer's open transaction must get in its partition."""
    return decide(wire, producer, described.transactional_id if described else None)


def remedy(entry: OpenTransaction) -> str:
    """Return the command or step that ends a hanging transaction."""
    described = entry.described
    if entry.verdict is not None:
        return marker_command(entry.producer, entry.verdict)
    assert described is not None, "its coordinator decides"
    return id_remedy(described)


def id_remedy(described: TransactionDescription) -> str:
    """Return the command or step that ends the overdue transaction of an id."""
    if described.state is TxnState.ONGOING:
        return f"eosframework txn abort {described.transactional_id}"
    return f"it is decided ({described.state}); start the brokers that its markers are missing on"


def marker_command(producer: ActiveProducer, verdict: Verdict) -> str:
    """Return the command that writes the missing marker; both if the outcome is unknown."""
    place = producer.partition
    outcomes = {True: "commit", False: "abort", None: "abort|commit"}
    return (
        f"eosframework txn {outcomes[verdict.is_committed]} --topic {place.topic} "
        f"--partition {place.partition} --producer-id {producer.producer_id}"
        f"{' --force' if verdict.is_committed is None else ''}"
    )
