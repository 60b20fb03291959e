"""The decision about records that are open in a partition although no coordinator will end them.

A coordinator that finds no leader of a partition takes it for deleted: it omits the marker and
completes the transaction (KAFKA-20734). So the outcome is what the coordinator logged. Producers of
transaction protocol 1 keep one epoch for many transactions, so the epoch does not name one:

D1. date the open records: they were appended after the last marker before them, of any producer
D2. read the states of the producer's id in `__transaction_state`, back to a time before that
D3. the candidates are its decided transactions that contain the partition, have no marker in it,
    and follow all that have one; older ones than D1 and those of other epochs do not count

Compaction keeps the newest state of an id and everything that it has not reached, so what is left
is an unbroken end of the history.

| candidates | outcome |
| --- | --- |
| with the same decision | that decision |
| none, and the history reaches back to D1 | abort: the records belong to no transaction |
| with both decisions, or a shorter history | unknown |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from eosframework.errors import ConfigurationError, RunError
from eosframework.kafka.inspect.coordinators import ActiveProducer, log_partition
from eosframework.kafka.inspect.formats import (
    TRANSACTION_STATE,
    TxnState,
    transactional_id_of,
)
from eosframework.kafka.inspect.log_scan import SKEW_MILLISECONDS
from eosframework.kafka.inspect.partition_log import read_log
from eosframework.kafka.inspect.transaction_trace import (
    FIRST_WINDOW_OFFSETS,
    MOST_OFFSETS,
    Stated,
    TracedTransaction,
    milliseconds,
    search,
    split,
    states_between,
)
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition

MARGIN_MILLISECONDS = 12 * SKEW_MILLISECONDS
"""Time before the open records whose transactions are read as well: markers are assigned by time,
and those of the first ones may belong to transactions that were not read."""

MOST_TRANSACTIONS = 1000
"""The newest transactions of an id whose markers are searched."""

MOST_TOLD = 4
"""The number of candidates in a message; the newest."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decided transaction that the open records may belong to.

    Args:
        log: the partition of `__transaction_state` with the decision, and its offset there.
    """

    transactional_id: str
    is_committed: bool
    decided: datetime
    log: TopicPartition
    offset: int

    def __str__(self) -> str:
        word = "committed" if self.is_committed else "aborted"
        return (
            f"{word} at {self.decided:%Y-%m-%d %H:%M:%S} UTC ({self.transactional_id!r}, "
            f"{self.log} at offset {self.offset})"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome that open records must get.

    Args:
        is_committed: None: it cannot be determined.
        reason: a clause.
    """

    is_committed: bool | None
    reason: str
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A producer's open records in a partition.

    Args:
        epochs: the producer epochs of the first and the last of them.
        since_ms: the time of the last marker before them; None: the log has none.
    """

    partition: TopicPartition
    producer_id: int
    epochs: tuple[int, int]
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class History:
    """The rest of an id's history.

    Args:
        decided: its decided transactions that contain the partition, the oldest first, each with
            whether its marker was found.
        is_complete: it begins before the open records.
    """

    transactional_id: str
    log: TopicPartition
    decided: Sequence[tuple[TracedTransaction, bool]]
    is_complete: bool


def decide(wire: Wire, producer: ActiveProducer, transactional_id: str | None) -> Verdict:
    """Return the outcome of a producer's open records in a partition.

    Args:
        wire: to the cluster.
        producer: has a transaction open in its partition.
        transactional_id: the producer's id; None: no coordinator knows the producer any more.
    """
    try:
        run = _open_run(wire, producer)
        if transactional_id is None:
            ids, is_whole = _ids_of(wire, run)
        else:
            ids, is_whole = [transactional_id], True
        return verdict(run, [_history(wire, run, name) for name in ids], is_whole=is_whole)
    except (ConfigurationError, RunError) as error:
        return Verdict(None, f"the logs cannot be read ({error})")


def verdict(run: OpenRun, histories: Sequence[History], *, is_whole: bool) -> Verdict:
    """Return the outcome, given the histories of all known ids of the producer (D3).

    Args:
        run: the open records.
        histories: without one, no state of the producer was found.
        is_whole: the logs that were searched for ids of the producer have all of their records.
    """
    found = tuple(entry for history in histories for entry in _candidates(run, history))
    decisions = {entry.is_committed for entry in found}
    texts = " or ".join(str(entry) for entry in found[-MOST_TOLD:])
    if len(decisions) == 2:
        return Verdict(None, f"the records belong to one or more of these: {texts}", found)
    if not (is_whole and all(history.is_complete for history in histories)):
        left = f"; it has {texts}" if found else ""
        return Verdict(
            None, f"{TRANSACTION_STATE} may have lost the decision to compaction{left}", found
        )
    if found:
        return Verdict(found[-1].is_committed, f"only its marker is missing: {found[-1]}", found)
    return Verdict(False, "no transaction of its producer contains these records")


def _candidates(run: OpenRun, history: History) -> list[Candidate]:
    marked = [number for number, (_, has_marker) in enumerate(history.decided) if has_marker]
    later = history.decided[marked[-1] + 1 :] if marked else history.decided
    first, last = run.epochs
    found: list[Candidate] = []
    for entry, _ in later:
        change, epoch = entry.decision, entry.producer_epoch
        assert change is not None, "only decided transactions"
        is_older = (
            run.since_ms is not None
            and milliseconds(change.time) < run.since_ms - SKEW_MILLISECONDS
        )
        # A fence, and each end under protocol 2, raise the epoch in the record that decides.
        if is_older or epoch is None or not first <= epoch <= last + 1:
            continue
        is_committed, place = bool(entry.is_committed), (history.log, change.offset)
        found.append(Candidate(history.transactional_id, is_committed, change.time, *place))
    return found


def _open_run(wire: Wire, producer: ActiveProducer) -> OpenRun:
    """Date the open records (D1)."""
    partition, start = producer.partition, producer.start_offset or 0
    epochs = [batch.producer_epoch for batch in read_log(wire, partition, start, start + 1)]
    return OpenRun(
        partition,
        producer.producer_id,
        (min([*epochs, producer.producer_epoch]), producer.producer_epoch),
        _last_marker_ms(wire, partition, start),
    )


def _last_marker_ms(wire: Wire, partition: TopicPartition, end: int) -> int | None:
    """Return the time of the last marker before an offset; markers have the leader's time."""
    first = wire.first_offsets([partition])[partition]
    high, window = end, FIRST_WINDOW_OFFSETS
    while high > first and end - high < MOST_OFFSETS:
        low = max(first, high - window)
        times = [
            batch.time_ms
            for batch in read_log(wire, partition, low, high)
            if batch.is_control and batch.is_transactional
        ]
        if times:
            return times[-1]
        high, window = low, window * 2
    return None


def _history(wire: Wire, run: OpenRun, transactional_id: str) -> History:
    """Read an id's transactions, back to a time before the open records (D2)."""
    log = log_partition(wire, transactional_id)
    states, is_complete = _states_since(wire, run, log, transactional_id)
    decided = [
        entry
        for entry in split(states)
        if entry.producer_id == run.producer_id
        and run.partition in entry.partitions
        and entry.decision is not None
    ][-MOST_TRANSACTIONS:]
    marked: set[int] = set()
    if decided:
        found, was_searched = search(wire, run.partition, decided)
        marked = {number for number, parts in found.items() if parts.marker is not None}
        is_complete = is_complete and was_searched
    return History(
        transactional_id,
        log,
        [(entry, number in marked) for number, entry in enumerate(decided)],
        is_complete,
    )


def _states_since(
    wire: Wire, run: OpenRun, log: TopicPartition, transactional_id: str
) -> tuple[list[Stated], bool]:
    """Return the states of an id, and whether they begin before the open records."""
    first, end = wire.first_offsets([log])[log], wire.high_watermarks([log])[log]
    since_ms = None if run.since_ms is None else run.since_ms - MARGIN_MILLISECONDS
    states: list[Stated] = []
    high, window = end, FIRST_WINDOW_OFFSETS
    while high > first and end - high < MOST_OFFSETS:
        low = max(first, high - window)
        states = states_between(wire, log, transactional_id, low, high) + states
        if since_ms is not None and states and states[0][1] < since_ms:
            return states, True
        high, window = low, window * 2
    return states, _begins(run, states)


def _begins(run: OpenRun, states: Sequence[Stated]) -> bool:
    """Return whether states begin before the open records, by their first one.

    They do if it is the first of the producer, or older than the records.
    """
    if not states:
        return False
    _, time_ms, value = states[0]
    if run.since_ms is not None and time_ms < run.since_ms - SKEW_MILLISECONDS:
        return True
    if value is None:
        return False
    is_first = value.state is TxnState.EMPTY and value.producer_epoch == 0
    return is_first or value.producer_id != run.producer_id


def _ids_of(wire: Wire, run: OpenRun) -> tuple[list[str], bool]:
    """Return the ids that had a producer, and whether nothing is missing in what was searched."""
    logs = list(wire.leaders([TRANSACTION_STATE]))
    firsts, ends = wire.first_offsets(logs), wire.high_watermarks(logs)
    starts = firsts
    if run.since_ms is not None:
        since = wire.offsets_at(dict.fromkeys(logs, run.since_ms - MARGIN_MILLISECONDS))
        starts = {log: since[log] if since[log] >= 0 else ends[log] for log in logs}
    wanted, ids, is_whole = struct.pack(">q", run.producer_id), set[str](), True
    for log in logs:
        start = max(starts[log], ends[log] - MOST_OFFSETS)
        is_whole = is_whole and start == starts[log]
        following = start
        for batch in read_log(wire, log, start, ends[log]):
            size = batch.next_offset - batch.first_offset
            is_whole = is_whole and batch.first_offset <= following and batch.record_count == size
            following = batch.next_offset
            if wanted not in batch.stored:
                continue
            ids.update(
                name
                for record in batch.records()
                if record.key and record.value and record.value[2:10] == wanted
                if (name := transactional_id_of(record.key)) is not None
            )
        is_whole = is_whole and following >= ends[log]
    return sorted(ids), is_whole
