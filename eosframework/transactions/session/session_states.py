"""The states of a transaction session, as a table, and its policy: consequences as data.

::

              begin                   commit
     READY ───────────▶ OPEN ───────────────────▶ COMMITTING
       ▲                  │                     clean │ │ │
       ├──────────────────┼───────────────────────────┘ │ │ suspect: committed, and the
       │                  │  a call failed              │ │ producer was replaced
       │                  ├─────────────────────────────┘ ▼
       │                  ▼                             SUSPECT
       │     ABORTABLE  UNKNOWN  FENCED                   │
       │         └────────┼────────┘                      │
       │                  │ R1 the id is taken again      │
       │                  ▼                               │
       │                TAKEN                             │
       │                  │ R2 the progress is read       │ R2
       └──── R3 resume ───┴───────────────────────────────┘

     any ── end ──▶ ENDED

These are the states of the work. Those of a librdkafka producer are in
`kafka/producer/producer_states.py`: a session whose producer is fenced may be UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from eosframework.errors import IdExpired, InstanceFenced, TransactionError


class State(StrEnum):
    """States of a transaction session."""

    READY = "ready"
    OPEN = "open"
    COMMITTING = "committing"
    SUSPECT = "suspect"
    """Committed; the producer was replaced, which may have fenced a successor."""
    ABORTABLE = "abortable"
    UNKNOWN = "unknown"
    """The transaction is committed or not."""
    FENCED = "fenced"
    TAKEN = "taken"
    """The id is taken again, and the progress is not read yet."""
    ENDED = "ended"


class Event(StrEnum):
    """Events of a transaction session."""

    BEGUN = "begin"
    COMMITTING = "commit"
    COMMITTED = "the commit was confirmed"
    SUSPECTED = "the commit was confirmed, and a frame may be in flight"
    ABORTED = "nothing of the transaction may be kept"
    DOUBTED = "a call had no answer"
    FENCED = "the producer was fenced"
    TAKEN = "the id was taken again"
    REFUSED = "the id could not be taken again"
    OWN = "the progress is this session's"
    OVERTAKEN = "another process moved the progress"
    UNREAD = "the progress could not be read"
    ENDED = "end"


_FAILED = {
    Event.ABORTED: State.ABORTABLE,
    Event.DOUBTED: State.UNKNOWN,
    Event.FENCED: State.FENCED,
    Event.ENDED: State.ENDED,
}
_OUT = {
    Event.TAKEN: State.TAKEN,
    Event.REFUSED: State.UNKNOWN,
    Event.FENCED: State.FENCED,
    Event.ENDED: State.ENDED,
}
_READ = {
    Event.OWN: State.READY,
    Event.OVERTAKEN: State.FENCED,
    Event.UNREAD: State.UNKNOWN,
    Event.ENDED: State.ENDED,
}

MOVES: Mapping[State, Mapping[Event, State]] = {
    State.READY: {Event.BEGUN: State.OPEN, **_FAILED},
    State.OPEN: {Event.COMMITTING: State.COMMITTING, **_FAILED},
    State.COMMITTING: {
        Event.COMMITTED: State.READY,
        Event.SUSPECTED: State.SUSPECT,
        **_FAILED,
    },
    State.SUSPECT: _READ,
    State.ABORTABLE: _OUT,
    State.UNKNOWN: _OUT,
    State.FENCED: _OUT,
    State.TAKEN: _READ,
    State.ENDED: {Event.ENDED: State.ENDED},
}
"""Next state by state and event; an event without an entry is a program error."""

OUT = frozenset({State.ABORTABLE, State.UNKNOWN, State.FENCED})
"""States in which the id has to be taken again."""


class Outcome(StrEnum):
    """The outcome of a transaction, as the progress shows it."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not_committed"
    OVERTAKEN = "overtaken"
    """Another process has moved the progress since."""


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

    def taken_over(self, name: str, writer: str = "") -> InstanceFenced:
        """Return the error of work that another owner has.

        Args:
            name: of the work.
            writer: describes the other owner.
        """
        by = f" ({writer})" if writer else ""
        return InstanceFenced(
            f"{name} was taken over by {self.successor}{by}; this one ends, and its open "
            f"transaction is aborted. {self.advice}"
        )


def backoff_seconds(attempts: int) -> float:
    """Return the pause before another attempt; none before the first."""
    if attempts == 0:
        return 0.0
    return min(BACKOFF_SECONDS * 2 ** min(attempts, 10), LONGEST_BACKOFF_SECONDS)
