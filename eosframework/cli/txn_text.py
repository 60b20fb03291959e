"""The text output of `eosframework txn`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from eosframework.kafka.inspect.coordinators import TransactionDescription, TransactionListing
from eosframework.kafka.inspect.decisions import Verdict
from eosframework.kafka.inspect.hanging import (
    Findings,
    Health,
    Lag,
    OpenTransaction,
    id_remedy,
    remaining,
    remedy,
)
from eosframework.kafka.inspect.log_scan import TracedMarker, Written
from eosframework.kafka.inspect.transaction_trace import StateChange, Trace, TracedTransaction
from eosframework.txnid import TransactionalId


def listed(entries: Sequence[TransactionListing]) -> str:
    """Return one line for each id."""
    if not entries:
        return "no such transactional id among those that this principal may describe"
    head = ("STATE", "TRANSACTIONAL ID", "PRODUCER", "COORDINATOR", "OWNER")
    rows = [
        (
            str(entry.state),
            entry.transactional_id,
            str(entry.producer_id),
            str(entry.coordinator_id),
            _owner(entry.owner),
        )
        for entry in entries
    ]
    return _table([head, *rows])


def described(transaction: TransactionDescription, lags: Sequence[Lag], now: datetime) -> str:
    """Return an id's state, with a line for each partition of its open transaction."""
    lines = [
        f"{transaction.transactional_id}: {transaction.state}",
        f"  owner        {_owner(transaction.owner)}",
        f"  producer     {transaction.producer_id}, epoch {transaction.producer_epoch}",
        f"  coordinator  broker {transaction.coordinator_id}",
        f"  timeout      {_duration(transaction.timeout)}",
    ]
    duration = transaction.open_for(now)
    if transaction.started is not None and duration is not None:
        late = ", longer than its timeout" if duration > transaction.timeout else ""
        since = _time(transaction.started)
        lines.append(f"  open since   {since}, for {_duration(duration)}{late}")
        lines.append(f"  partitions   {len(transaction.partitions) or 'none yet'}")
    lines += [f"    {_lag(lag)}" for lag in lags]
    return "\n".join(lines)


def findings(found: Findings, now: datetime) -> str:
    """Return the hanging transactions with the commands that end them, and the healthy ones."""
    lines: list[str] = []
    for entry in found.hanging:
        lines += _hanging(entry, now)
    for transaction in found.overdue:
        open_for = _duration(transaction.open_for(now) or timedelta(0))
        lines.append(
            f"{transaction.transactional_id} is {transaction.state} for {open_for}, longer than "
            f"its timeout of {_duration(transaction.timeout)}; it blocks no reader"
        )
        lines.append(f"  end it: {id_remedy(transaction)}")
    if not lines:
        lines.append("no transaction hangs")
    healthy = [o for o in found.open_transactions if o.health is Health.HEALTHY]
    for entry in healthy:
        lines.append(_healthy(entry, now))
    return "\n".join(lines)


def traced(trace: Trace) -> str:
    """Return the history of each transaction, in the order of its timestamps."""
    lines = [f"{trace.transactional_id}, written in {trace.log_partition}"]
    for entry in trace.transactions:
        lines += ["", _headline(entry)]
        lines += [f"  {line}" for _, line in sorted(_events(entry), key=lambda event: event[0])]
        lines += [f"  {'':12}  wrote {_records(w)} into {w.partition}" for w in entry.written]
        done = "committed" if entry.is_committed else "sent, not committed:"
        lines += [
            f"  {'':12}  {done} {o.partition} at {o.offset} for group {o.group}"
            for o in entry.offsets
        ]
        lines += [f"  {'':12}  no marker found in {p}" for p in entry.missing_markers]
    if trace.cut_short:
        places = ", ".join(map(str, trace.cut_short))
        lines += ["", f"not searched to the end for markers, because of their length: {places}"]
    return "\n".join(lines)


def _headline(entry: TracedTransaction) -> str:
    if entry.decision is not None:
        began = f" began {_time(entry.started)}" if entry.started else ""
        outcome = "committed" if entry.is_committed else "aborted"
        last = entry.changes[-1].time
        took = f" after {_duration(last - entry.started)}" if entry.started else ""
        head = f"transaction{began}, {outcome}{took}"
    elif entry.started is not None:
        head = f"transaction began {_time(entry.started)}, still open"
    else:
        head = "the id was initialized; no transaction since"
    return f"{head} (producer {entry.producer_id}, epoch {entry.producer_epoch})"


def _events(entry: TracedTransaction) -> Iterable[tuple[tuple[datetime, int], str]]:
    """Return (sort key, line) pairs; at the same time, a marker sorts before a state."""
    for number, change in enumerate(entry.changes):
        yield (change.time, number + 1), f"{_clock(change.time)}  {_change(entry, change)}"
    for marker in entry.markers:
        yield (marker.time, 0), f"{_clock(marker.time)}  {_marker(marker)}"


def _change(entry: TracedTransaction, change: StateChange) -> str:
    groups = ", ".join(sorted({position.group for position in entry.offsets}))
    joined = [
        f"{partition} (group {groups})"
        if groups and partition.topic.startswith("__")
        else str(partition)
        for partition in change.joined
    ]
    return f"{change.state:<16}{'+ ' if joined else ''}{', '.join(joined)}".rstrip()


def _marker(marker: TracedMarker) -> str:
    kind = "COMMIT" if marker.committed else "ABORT"
    by = "" if marker.coordinator_epoch is not None else ", written by an administrator"
    return f"  marker {kind:<7} {marker.partition} at offset {marker.offset}{by}"


def _records(written: Written) -> str:
    if written.first_offset == written.last_offset:
        return f"the record at offset {written.first_offset}"
    return f"{written.records} records at offsets {written.first_offset} to {written.last_offset}"


def _hanging(entry: OpenTransaction, now: datetime) -> list[str]:
    producer, transaction = entry.producer, entry.described
    who = f" of {transaction.transactional_id} ({_owner(transaction.owner)})" if transaction else ""
    wrote = (
        f", wrote last {_duration(now - producer.last_write)} ago" if producer.last_write else ""
    )
    lines = [
        f"{entry.partition}: the transaction of producer {producer.producer_id}, epoch "
        f"{producer.producer_epoch}{who} hangs: {entry.health.meaning}",
        f"  open {_held(entry)}{wrote}",
    ]
    if entry.verdict is not None:
        lines.append(f"  {_outcome(entry.verdict)}: {entry.verdict.reason}")
    return [*lines, f"  end it: {remedy(entry)}"]


def _outcome(verdict: Verdict) -> str:
    if verdict.is_committed is None:
        return "outcome unknown"
    return "committed" if verdict.is_committed else "not committed"


def _healthy(entry: OpenTransaction, now: datetime) -> str:
    if (transaction := entry.described) is None:
        return f"healthy: {entry.partition} {_held(entry)}"
    left = max(remaining(transaction, now), timedelta(0))
    return (
        f"healthy: {transaction.transactional_id} is open in {entry.partition} {_held(entry)}; "
        f"it ends within {_duration(left)}"
    )


def _held(entry: OpenTransaction) -> str:
    return (
        f"from offset {entry.start_offset}; last stable offset {entry.last_stable_offset}, "
        f"{entry.held_back} behind the end of the log"
    )


def _lag(lag: Lag) -> str:
    held = f"{lag.offsets} behind the end {lag.high_watermark}" if lag.offsets else "at the end"
    return f"{lag.partition}: last stable offset {lag.last_stable_offset}, {held}"


def _owner(task: TransactionalId | None) -> str:
    if task is None:
        return "foreign"
    if task.instance is not None:
        return f"{task.application}, worker {task.instance}"
    return f"{task.application}, sub-topology {task.sub_topology}, partition {task.partition}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d} {_clock(time)} UTC"


def _clock(time: datetime) -> str:
    return f"{time:%H:%M:%S}.{time.microsecond // 1000:03d}"


def _duration(span: timedelta) -> str:
    seconds = span.total_seconds()
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
