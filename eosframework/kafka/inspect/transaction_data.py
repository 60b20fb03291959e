"""Transactions of a cluster as plain data, for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from eosframework.kafka.inspect.coordinators import TransactionDescription, TransactionListing
from eosframework.kafka.inspect.decisions import Verdict
from eosframework.kafka.inspect.formats import CommittedOffset
from eosframework.kafka.inspect.hanging import Findings, Health, Lag, OpenTransaction
from eosframework.kafka.inspect.transaction_trace import Trace, TracedTransaction
from eosframework.records import TopicPartition
from eosframework.txnid import TransactionalId


def listed_data(entry: TransactionListing) -> dict[str, Any]:
    """Return the data of one id."""
    return {
        "transactional_id": entry.transactional_id,
        "state": entry.state,
        "producer_id": entry.producer_id,
        "coordinator": entry.coordinator_id,
        "owner": _owner_data(entry.owner),
    }


def described_data(
    transaction: TransactionDescription, lags: Sequence[Lag], now: datetime
) -> dict[str, Any]:
    """Return the data of an id, with the lag of each partition's last stable offset."""
    return {**_described_data(transaction, now), "partitions": [_lag_data(lag) for lag in lags]}


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


def traced_data(trace: Trace) -> dict[str, Any]:
    """Return the data of each transaction: states, markers, records and offsets."""
    return {
        "transactional_id": trace.transactional_id,
        "log_partition": _partition_data(trace.log_partition),
        "transactions": [_transaction_data(entry) for entry in trace.transactions],
        "cut_short": [_partition_data(p) for p in trace.cut_short],
    }


def _owner_data(task: TransactionalId | None) -> dict[str, Any] | None:
    if task is None:
        return None
    return {
        "application": task.application,
        "sub_topology": task.sub_topology,
        "partition": task.partition,
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
        "outcome": _verdict_data(entry.verdict) if entry.verdict else None,
        "transaction": _described_data(entry.described, now) if entry.described else None,
    }


def _verdict_data(verdict: Verdict) -> dict[str, Any]:
    return {
        "committed": verdict.is_committed,
        "reason": verdict.reason,
        "candidates": [
            {
                "transactional_id": candidate.transactional_id,
                "committed": candidate.is_committed,
                "decided": candidate.decided,
                "log": _partition_data(candidate.log),
                "offset": candidate.offset,
            }
            for candidate in verdict.candidates
        ],
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
