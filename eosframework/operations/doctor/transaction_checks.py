"""Open transactions that block this application or its readers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from eosframework.kafka.inspect.hanging import Health, OpenTransaction, remedy
from eosframework.operations.doctor.findings import Observation, Severity
from eosframework.operations.doctor.snapshot import Snapshot


def hanging(snapshot: Snapshot) -> Iterator[Observation]:
    """Find hanging transactions in the application's topics."""
    for entry in snapshot.open_transactions.read():
        if entry.health is not Health.HEALTHY:
            yield _hanging(entry)


def hanging_offsets(snapshot: Snapshot) -> Iterator[Observation]:
    """Find hanging transactions in the partition with the group's offsets."""
    for entry in snapshot.open_offsets.read():
        if entry.health is not Health.HEALTHY:
            yield _hanging(entry)


def blocked_readers(snapshot: Snapshot) -> Iterator[Observation]:
    """Report readers blocked by open transactions, and transactions that are open for long."""
    for entry in snapshot.open_transactions.read():
        transaction = entry.described
        if entry.health is not Health.HEALTHY or transaction is None:
            continue
        open_for = transaction.open_for(snapshot.taken_at) or timedelta(0)
        long = open_for.total_seconds() * 1000 > snapshot.transaction_timeout_ms
        yield Observation(
            str(entry.partition),
            f"last stable offset {entry.last_stable_offset}, end {entry.high_watermark}: "
            f"{transaction.transactional_id} has a transaction open for "
            f"{open_for.total_seconds():.1f} s",
            expected=f"it ends within {transaction.timeout.total_seconds():g} s of its begin",
            fix=f"eosframework txn describe {transaction.transactional_id}",
            severity=Severity.WARNING if long else Severity.NOTE,
        )


def _hanging(entry: OpenTransaction) -> Observation:
    who = f" of {entry.described.transactional_id}" if entry.described else ""
    return Observation(
        str(entry.partition),
        f"producer {entry.producer.producer_id}{who} has a transaction open at offset "
        f"{entry.start_offset}, and {entry.held_back} offsets wait: {entry.health.meaning}",
        fix=remedy(entry),
    )


CHECKS = {
    "hanging-transactions": hanging,
    "hanging-offsets": hanging_offsets,
    "held-back": blocked_readers,
}
