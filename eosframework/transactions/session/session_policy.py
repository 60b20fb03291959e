"""The policy of a transaction session: the consequences of an outcome, as data.

The pauses and their growth are the same for all sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eosframework.errors import IdExpired, TransactionError

BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 5.0

PATIENCE_SECONDS = 120.0
"""Longest time without a commit after a failure, for work that can be started again."""


class FenceKind(StrEnum):
    """The cause of a fence, as far as the session can know; the log event if it resumes.

    The brokers report `_FENCED` for a successor and for an expired transaction (KIP-588 separates
    them; librdkafka does not implement it). A transaction younger than its timeout cannot have
    expired.
    """

    ID_EXPIRED = "transactional_id_expired"
    TRANSACTION_EXPIRED = "transaction_expired"
    ANOTHER = "fenced_while_owner"
    """Another process took the id."""
    SUCCESSOR = "claimed_while_owner"
    """Another process claimed the work, as its progress shows; it is no rival."""


def fence_kind(error: TransactionError, age_seconds: float, timeout_seconds: float) -> FenceKind:
    """Return the cause of a fence.

    Args:
        error: of the call.
        age_seconds: since the transaction began.
        timeout_seconds: the transaction timeout.
    """
    if isinstance(error, IdExpired):
        return FenceKind.ID_EXPIRED
    if age_seconds >= timeout_seconds:
        return FenceKind.TRANSACTION_EXPIRED
    return FenceKind.ANOTHER


@dataclass(frozen=True, slots=True)
class Policy:
    """The consequences of outcomes for one kind of work.

    Args:
        timeout_seconds: the transaction timeout.
        watch_seconds: time between a fence and the proof of ownership. None: a fence that cannot be
            expiry ends the session, because a later process continues its work.
        rival_fences: this many fences that cannot be expiry, without a commit in between, show a
            rival.
        rival_seconds: as many within this time show one as well, with or without commits.
        patience_seconds: longest time without a commit after a failure; None: no limit.
        successor: the process that took the id, for the message.
        advice: the state of the work and the next step, for the message of an end.
    """

    timeout_seconds: float
    successor: str
    advice: str
    watch_seconds: float | None = None
    rival_fences: int = 3
    rival_seconds: float = 0.0
    patience_seconds: float | None = PATIENCE_SECONDS


def backoff_seconds(attempts: int) -> float:
    """Return the pause before another attempt; none before the first."""
    if attempts == 0:
        return 0.0
    return min(BACKOFF_SECONDS * 2 ** min(attempts, 10), LONGEST_BACKOFF_SECONDS)
