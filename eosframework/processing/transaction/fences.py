"""Distinction of fencing by expiry from fencing by a rival.

The brokers report `_FENCED` both when they ended a transaction that exceeded its timeout and when
another producer took the id (KIP-588 separates the two; librdkafka does not implement it). The
worker knows more: a transaction younger than its timeout cannot have expired. Such a fence without
a rebalance means that another process uses the id. It may have stopped since, so one fence is no
reason to end; several in a short time are: two rivals would fence each other after a few commits,
for ever.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from eosframework.errors import IdExpired, InstanceFenced, TransactionError
from eosframework.processing.transaction.producer_group import ProducerGroup

FENCES_IN_A_ROW = 3
"""A producer fenced this often without a commit in between has a rival with the same identity."""

RIVAL_FENCES = 3
RIVAL_HEARTBEATS = 30
"""This many fences that cannot be expiry, within this many heartbeat intervals, show a rival,
with or without commits in between. Two rivals wait two heartbeats each, so a worker is fenced
every four."""


class FenceKind(StrEnum):
    """The cause of a fence, as far as the worker can know; the log event if it resumes."""

    ID_EXPIRED = "transactional_id_expired"
    TRANSACTION_EXPIRED = "transaction_expired"
    ANOTHER = "fenced_while_owner"
    """Another process took the id without being assigned the partition."""


def kind_of(group: ProducerGroup[Any], error: TransactionError, age_seconds: float) -> FenceKind:
    """Return the cause of a fence `age_seconds` after the transaction began."""
    if isinstance(error, IdExpired):
        return FenceKind.ID_EXPIRED
    if age_seconds >= group.transaction_timeout_seconds:
        return FenceKind.TRANSACTION_EXPIRED
    return FenceKind.ANOTHER


class FenceHistory:
    """The fences of a producer since its partitions were assigned.

    Args:
        heartbeat_seconds: the heartbeat interval.
    """

    def __init__(self, heartbeat_seconds: float) -> None:
        self._window_seconds = RIVAL_HEARTBEATS * heartbeat_seconds
        self._rival_fences: list[float] = []

    def add(self, group: ProducerGroup[Any], kind: FenceKind, now: float) -> None:
        """Count a fence; expiry, however frequent, does not show a rival.

        Raises:
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        if kind is not FenceKind.ANOTHER:
            return
        group.fences_in_a_row += 1
        since = now - self._window_seconds
        self._rival_fences = [at for at in self._rival_fences if at > since] + [now]
        rivals = len(self._rival_fences)
        if group.fences_in_a_row >= FENCES_IN_A_ROW or rivals >= RIVAL_FENCES:
            count = max(group.fences_in_a_row, rivals)
            raise InstanceFenced(
                f"transactional.id {group.transactional_id} was taken over {count} times without "
                f"a rebalance: another process uses the same application name. Stop it, or give "
                f"one of them another name"
            )
