"""The output of `eosframework txn`: text, and data for `--json`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from eosframework.kafka.inspect.coordinators import TransactionDescription, TransactionListing
from eosframework.kafka.inspect.formats import CommittedOffset
from eosframework.kafka.inspect.hanging import (
    Findings,
    Health,
    Lag,
    OpenTransaction,
    remaining,
    remedy,
)
from eosframework.kafka.inspect.log_scan import TracedMarker, Written
from eosframework.kafka.inspect.transaction_trace import StateChange, Trace, TracedTransaction
from eosframework.records import TopicPartition
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


def listed_data(entry: TransactionListing) -> dict[str, Any]:
    """Return the data of one id."""
    return {
        "transactional_id": entry.transactional_id,
        "state": entry.state,
        "producer_id": entry.producer_id,
        "coordinator": entry.coordinator_id,
        "owner": _owner_data(entry.owner),
    }


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


def described_data(
    transaction: TransactionDescription, lags: Sequence[Lag], now: datetime
) -> dict[str, Any]:
    """Return the data of an id, with the lag of each partition's last stable offset."""
    return {**_described_data(transaction, now), "partitions": [_lag_data(lag) for lag in lags]}


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
        lines.append(f"  end it: eosframework txn abort {transaction.transactional_id}")
    if not lines:
        lines.append("no transaction hangs")
    healthy = [o for o in found.open_transactions if o.health is Health.HEALTHY]
    for entry in healthy:
        lines.append(_healthy(entry, now))
    return "\n".join(lines)


def findings_data(found: Findings, now: datetime) -> dict[str, Any]:
    """Return the hanging, the healthy, and the overdue transactions that block no reader."""
    return {
        "hanging": [_open_data(entry, now) for entry in found.hanging],
        "healthy": [
            _open_data(entry, now)
            for entry in found.open_transactions
            if entry.health is Health.HEALTHY
        ],
        "overdue": [_described_data(transaction, now) for transaction in found.overdue],
    }


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


def traced_data(trace: Trace) -> dict[str, Any]:
    """Return the data of each transaction: states, markers, records and offsets."""
    return {
        "transactional_id": trace.transactional_id,
        "log_partition": _partition_data(trace.log_partition),
        "transactions": [_transaction_data(entry) for entry in trace.transactions],
        "cut_short": [_partition_data(p) for p in trace.cut_short],
    }


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
    return [
        f"{entry.partition}: the transaction of producer {producer.producer_id}, epoch "
        f"{producer.producer_epoch}{who} hangs: {entry.health.meaning}",
        f"  open {_held(entry)}{wrote}",
        f"  end it: {remedy(entry)}",
    ]


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
    return f"{task.application}, sub-topology {task.sub_topology}, partition {task.numbers}"


def _owner_data(task: TransactionalId | None) -> dict[str, Any] | None:
    if task is None:
        return None
    return {
        "application": task.application,
        "sub_topology": task.sub_topology,
        "partition": task.partition,
        "partitions_per_producer": task.partitions_per_producer,
        "instance": task.instance,
    }


def _described_data(transaction: TransactionDescription, now: datetime) -> dict[str, Any]:
    duration = transaction.open_for(now)
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "owner": _owner_data(transaction.owner),
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator": transaction.coordinator_id,
        "timeout_seconds": transaction.timeout.total_seconds(),
        "open_since": transaction.started if duration is not None else None,
        "open_seconds": duration.total_seconds() if duration is not None else None,
        "partitions": [_partition_data(p) for p in transaction.partitions],
    }


def _open_data(entry: OpenTransaction, now: datetime) -> dict[str, Any]:
    return {
        **_partition_data(entry.partition),
        "producer_id": entry.producer.producer_id,
        "producer_epoch": entry.producer.producer_epoch,
        "health": entry.health,
        "meaning": entry.health.meaning,
        "start_offset": entry.start_offset,
        "last_stable_offset": entry.last_stable_offset,
        "high_watermark": entry.high_watermark,
        "held_back": entry.held_back,
        "last_write": entry.producer.last_write,
        "transaction": _described_data(entry.described, now) if entry.described else None,
    }


def _transaction_data(entry: TracedTransaction) -> dict[str, Any]:
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "started": entry.started,
        "committed": entry.is_committed,
        "states": [
            {
                "state": change.state,
                "time": change.time,
                "offset": change.offset,
                "joined": [_partition_data(p) for p in change.joined],
            }
            for change in entry.changes
        ],
        "markers": [
            {
                **_partition_data(marker.partition),
                "offset": marker.offset,
                "time": marker.time,
                "committed": marker.committed,
                "coordinator_epoch": marker.coordinator_epoch,
            }
            for marker in entry.markers
        ],
        "missing_markers": [_partition_data(p) for p in entry.missing_markers],
        "written": [
            {
                **_partition_data(written.partition),
                "first_offset": written.first_offset,
                "last_offset": written.last_offset,
                "records": written.records,
            }
            for written in entry.written
        ],
        "offsets": [_offset_data(position) for position in entry.offsets],
    }


def _offset_data(position: CommittedOffset) -> dict[str, Any]:
    data = _partition_data(position.partition)
    return {"group": position.group, **data, "offset": position.offset}


def _lag_data(lag: Lag) -> dict[str, Any]:
    return {
        **_partition_data(lag.partition),
        "last_stable_offset": lag.last_stable_offset,
        "high_watermark": lag.high_watermark,
        "held_back": lag.offsets,
    }


def _partition_data(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


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
