"""History of an id's last transactions, from the brokers' own records.

1. The states come from `__transaction_state`, where the coordinator writes each transition.
2. The markers and written records come from the logs of the participating partitions.
3. The committed offsets come from `__consumer_offsets`, where a group's partition participates too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from eosframework.errors import ConfigurationError
from eosframework.kafka.inspect.coordinators import at, log_partition
from eosframework.kafka.inspect.formats import (
    CONSUMER_OFFSETS,
    OPEN_STATES,
    CommittedOffset,
    StateValue,
    TxnState,
    decode_state,
    transactional_id_of,
)
from eosframework.kafka.inspect.log_scan import (
    SKEW_MILLISECONDS,
    Collected,
    Found,
    Span,
    TracedMarker,
    Written,
)
from eosframework.kafka.inspect.partition_log import read_log
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition

FIRST_WINDOW_OFFSETS = 20_000
"""Size of the first search window for states; each further window is twice as large."""

MOST_OFFSETS = 2_000_000
"""The greatest distance from the end that is searched for states."""

MOST_BYTES = 128 << 20
"""The most bytes of a partition's log that are searched for markers."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """One record of the coordinator.

    Args:
        joined: partitions that this record added to the transaction.
    """

    state: TxnState
    time: datetime
    offset: int
    joined: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class TracedTransaction:
    """One transaction, with its records in the order in which they were written.

    Args:
        producer_id: None: the id expired (its state was deleted).
        partitions: all participants.
        missing_markers: participants whose marker was not found.
        written: per partition; a partition whose log was not searched far enough back is absent.
        offsets: those still in the log; compaction removes aborted ones, and keeps only the group's
            newest offset of a partition.
    """

    producer_id: int | None
    producer_epoch: int | None
    started: datetime | None
    changes: tuple[StateChange, ...]
    partitions: tuple[TopicPartition, ...]
    markers: tuple[TracedMarker, ...] = ()
    missing_markers: tuple[TopicPartition, ...] = ()
    written: tuple[Written, ...] = ()
    offsets: tuple[CommittedOffset, ...] = ()

    @property
    def state(self) -> TxnState:
        """The last state written."""
        return self.changes[-1].state

    @property
    def decision(self) -> StateChange | None:
        """The record that decided it; None: it is open, or nothing was begun."""
        for change in self.changes:
            if change.state in _DECIDED:
                return change
        return None

    @property
    def is_committed(self) -> bool | None:
        """The decision: True to commit, False to abort; None: it is not decided."""
        return _DECIDED[self.decision.state] if self.decision else None


_DECIDED = {
    TxnState.PREPARE_COMMIT: True,
    TxnState.COMPLETE_COMMIT: True,
    TxnState.PREPARE_ABORT: False,
    TxnState.COMPLETE_ABORT: False,
}
_COMPLETE = (
    TxnState.COMPLETE_COMMIT,
    TxnState.COMPLETE_ABORT,
    TxnState.DEAD,
)


@dataclass(frozen=True, slots=True)
class Trace:
    """An id's last transactions, the oldest first.

    Args:
        cut_short: partitions whose log was too long to be searched to its end.
    """

    transactional_id: str
    log_partition: TopicPartition
    transactions: tuple[TracedTransaction, ...]
    cut_short: tuple[TopicPartition, ...]


def trace(wire: Wire, transactional_id: str, last: int) -> Trace:
    """Return the last transactions of an id, as far as the brokers still have their records.

    Args:
        wire: to the cluster.
        transactional_id: the id.
        last: the number of transactions.

    Raises:
        ConfigurationError: nothing is recorded of the id, or this principal may not read it.
    """
    partition = log_partition(wire, transactional_id)
    states = _read_states(wire, partition, transactional_id, last)
    transactions = split(states)[-last:]
    if not transactions:
        raise ConfigurationError(
            f"{partition} holds no record of transactional id {transactional_id!r}: it was never "
            f"used here, or was forgotten; `eosframework txn list` shows those that are known"
        )
    cut_short: list[TopicPartition] = []
    existing = wire.leaders({p.topic for entry in transactions for p in entry.partitions})
    for taking_part in sorted({p for entry in transactions for p in entry.partitions}):
        if taking_part not in existing:
            continue
        found, complete = search(wire, taking_part, transactions)
        transactions = [
            _with(entry, found[index]) if index in found else entry
            for index, entry in enumerate(transactions)
        ]
        if not complete:
            cut_short.append(taking_part)
    return Trace(
        transactional_id=transactional_id,
        log_partition=partition,
        transactions=tuple(_with_missing(entry) for entry in transactions),
        cut_short=tuple(cut_short),
    )


Stated = tuple[int, int, StateValue | None]
"""Offset, time in ms, and the state; None: the id expired."""


def split(states: Iterable[Stated]) -> list[TracedTransaction]:
    """Return the transactions in a sequence of states.

    A new producer's state (Empty) opens the transaction that it begins next.
    """
    transactions: list[TracedTransaction] = []
    group: list[Stated] = []
    for stated in states:
        group.append(stated)
        value = stated[2]
        if value is None or value.state in _COMPLETE:
            transactions.append(_transaction(group))
            group = []
    if group:
        transactions.append(_transaction(group))
    return transactions


def _transaction(states: Sequence[Stated]) -> TracedTransaction:
    changes: list[StateChange] = []
    partitions: set[TopicPartition] = set()
    values = [value for _, _, value in states if value is not None]
    # A producer id that runs out of epochs is replaced in the record that completes.
    acting = [value for value in values if value.state in OPEN_STATES] or values
    newest = acting[-1] if acting else None
    for offset, time_ms, value in states:
        taking_part = value.partitions if value else ()
        joined = tuple(entry for entry in taking_part if entry not in partitions)
        partitions.update(joined)
        state = value.state if value else TxnState.DEAD
        changes.append(StateChange(state, at(time_ms), offset, joined))
    return TracedTransaction(
        producer_id=newest.producer_id if newest else None,
        producer_epoch=newest.producer_epoch if newest else None,
        started=at(newest.started_ms) if newest and newest.started_ms is not None else None,
        changes=tuple(changes),
        partitions=tuple(sorted(partitions)),
    )


def _read_states(
    wire: Wire, partition: TopicPartition, transactional_id: str, last: int
) -> list[Stated]:
    """Return the id's states, oldest first, of one transaction more than `last`.

    The additional one makes sure that the oldest requested one is complete.
    """
    first = wire.first_offsets([partition])[partition]
    end = high = wire.high_watermarks([partition])[partition]
    states: list[Stated] = []
    window = FIRST_WINDOW_OFFSETS
    while high > first and end - high < MOST_OFFSETS and len(split(states)) <= last:
        low = max(first, high - window)
        states = states_between(wire, partition, transactional_id, low, high) + states
        high, window = low, window * 2
    return states


def states_between(
    wire: Wire, partition: TopicPartition, transactional_id: str, low: int, high: int
) -> list[Stated]:
    """Return the states of an id in a range of its partition of `__transaction_state`."""
    wanted = transactional_id.encode()
    return [
        (record.offset, record.time_ms, decode_state(record.value) if record.value else None)
        for batch in read_log(wire, partition, low, high)
        if not batch.is_control
        for record in batch.records()
        if low <= record.offset < high
        and record.key is not None
        and record.key.endswith(wanted)
        and transactional_id_of(record.key) == transactional_id
    ]


def search(
    wire: Wire, partition: TopicPartition, transactions: Sequence[TracedTransaction]
) -> tuple[dict[int, Found], bool]:
    """Return these transactions' parts of a partition's log, and whether all was searched."""
    spans = {
        index: _span(entry)
        for index, entry in enumerate(transactions)
        if partition in entry.partitions
    }
    producers = {span.producer_id for span in spans.values()}
    start_ms = min(span.from_ms for span in spans.values()) - SKEW_MILLISECONDS
    first = wire.first_offsets([partition])[partition]
    start = wire.offsets_at({partition: start_ms})[partition]
    end = wire.high_watermarks([partition])[partition]
    if start < 0:
        return {}, True
    # Coordinators date committed offsets; records of other topics have arbitrary timestamps.
    is_whole = start <= first or partition.topic == CONSUMER_OFFSETS
    collected = Collected(partition, is_whole=is_whole)
    left_bytes = MOST_BYTES
    completed = [span.complete_ms for span in spans.values() if span.complete_ms is not None]
    for batch in read_log(wire, partition, start, end):
        # Markers have the broker's time: none of these transactions has a marker after this one.
        is_late = bool(completed) and batch.time_ms > max(completed) + SKEW_MILLISECONDS
        if batch.is_control and is_late and len(completed) == len(spans):
            break
        left_bytes -= batch.size_bytes
        if batch.producer_id in producers and batch.is_transactional:
            collected.take(batch)
        if left_bytes < 0:
            break
    return collected.assign(spans), left_bytes >= 0


def _span(entry: TracedTransaction) -> Span:
    """Return the time span in which the markers of a transaction must have been written."""
    decision = entry.decision
    complete = entry.changes[-1] if entry.state in _COMPLETE else None
    started = entry.started or entry.changes[0].time
    return Span(
        producer_id=entry.producer_id,
        from_ms=milliseconds(started),
        decided_ms=milliseconds(decision.time) if decision and decision != complete else None,
        complete_ms=milliseconds(complete.time) if complete else None,
        committed=entry.is_committed,
    )


def _with(entry: TracedTransaction, found: Found) -> TracedTransaction:
    return replace(
        entry,
        markers=entry.markers + ((found.marker,) if found.marker else ()),
        written=entry.written + ((found.written,) if found.written else ()),
        offsets=entry.offsets + found.offsets,
    )


def _with_missing(entry: TracedTransaction) -> TracedTransaction:
    if entry.is_committed is None:
        return entry
    marked = {marker.partition for marker in entry.markers}
    return replace(entry, missing_markers=tuple(p for p in entry.partitions if p not in marked))


def milliseconds(time: datetime) -> int:
    """Return a time as Kafka's milliseconds since 1970."""
    return round(time.timestamp() * 1000)
