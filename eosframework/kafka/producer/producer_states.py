"""The states of a transactional producer, as a table.

::

                      init              begin                commit sent
          NEW ───────────────► READY ──────────► IN_TRANSACTION ────────► UNDECIDED
                                ▲ ▲                 │   ▲                  │   │
                     recycled   │ │ clean     abort │   └──────────────────┘   │ committed
                                │ │                 ▼       not committed      ▼
                             SUSPECT ◄──────────────┴──────────────────────── ENDED
                                          a frame may be in flight

    any ── fenced ──► FENCED       any ── fatal ──► FAILED       any ── close ──► CLOSED

From UNDECIDED, FENCED and FAILED only the caller leads out, with `recycle()`: taking the id again
would fence a rightful owner, or hide that a commit happened.
"""

from __future__ import annotations

from enum import StrEnum

from confluent_kafka import KafkaError, KafkaException


class State(StrEnum):
    """States of a transactional producer."""

    NEW = "new"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    UNDECIDED = "undecided"
    """A commit was sent and not confirmed."""
    ENDED = "ended"
    """Committed, and not yet checked for stragglers."""
    SUSPECT = "suspect"
    """A request may be in flight: the id has to be initialized again first."""
    FENCED = "fenced"
    FAILED = "failed"
    CLOSED = "closed"


class Event(StrEnum):
    """Events of a transactional producer."""

    INITED = "init_transactions"
    BEGUN = "begin_transaction"
    OFFSETS_SENT = "send_offsets_to_transaction"
    COMMIT_SENT = "commit_transaction"
    COMMITTED = "the commit was confirmed"
    REFUSED = "the commit was refused"
    VERIFIED = "no frame can be in flight"
    ABORTED = "abort_transaction"
    DOUBTED = "a frame may be in flight"
    RECYCLED = "recycle"
    FENCED = "another producer took the id"
    FAILED = "a fatal error"
    CLOSED = "close"


_ANYWHERE: dict[Event, State] = {
    Event.FENCED: State.FENCED,
    Event.FAILED: State.FAILED,
    Event.CLOSED: State.CLOSED,
}

MOVES: dict[State, dict[Event, State]] = {
    State.NEW: {Event.INITED: State.READY, **_ANYWHERE},
    State.READY: {
        Event.BEGUN: State.IN_TRANSACTION,
        Event.DOUBTED: State.SUSPECT,
        Event.RECYCLED: State.READY,
        **_ANYWHERE,
    },
    State.IN_TRANSACTION: {
        Event.OFFSETS_SENT: State.IN_TRANSACTION,
        Event.COMMIT_SENT: State.UNDECIDED,
        Event.ABORTED: State.SUSPECT,
        Event.RECYCLED: State.READY,
        **_ANYWHERE,
    },
    State.UNDECIDED: {
        Event.COMMIT_SENT: State.UNDECIDED,
        Event.COMMITTED: State.ENDED,
        Event.REFUSED: State.IN_TRANSACTION,
        Event.ABORTED: State.SUSPECT,
        Event.RECYCLED: State.READY,
        **_ANYWHERE,
    },
    State.ENDED: {
        Event.VERIFIED: State.READY,
        Event.DOUBTED: State.SUSPECT,
        Event.RECYCLED: State.READY,
        **_ANYWHERE,
    },
    State.SUSPECT: {
        Event.ABORTED: State.SUSPECT,
        Event.VERIFIED: State.READY,
        Event.RECYCLED: State.READY,
        **_ANYWHERE,
    },
    State.FENCED: {Event.RECYCLED: State.READY, **_ANYWHERE},
    State.FAILED: {Event.RECYCLED: State.READY, **_ANYWHERE},
    State.CLOSED: {Event.CLOSED: State.CLOSED},
}
"""Next state by state and event; an event without an entry is not allowed."""

_ADVICE: dict[State, str] = {
    State.NEW: "call init_transactions() first",
    State.READY: "call begin_transaction() first",
    State.IN_TRANSACTION: "commit or abort the open transaction first",
    State.UNDECIDED: "call commit_transaction() again, or recycle() and read committed offsets",
    State.ENDED: "verify() the commit first",
    State.SUSPECT: "call begin_transaction() or recycle()",
    State.FENCED: "if this process still owns the id, recycle(); otherwise close()",
    State.FAILED: "fix what the error named, then recycle(); or close()",
    State.CLOSED: "make a new producer",
}


class BadTransition(KafkaException):
    """A call that the producer's state does not allow: an error in the calling program.

    `args[0]` is a KafkaError with code _STATE, as librdkafka has it.
    """


class StateTable:
    """The state of one producer.

    Args:
        name: of the producer, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = State.NEW

    def require(self, event: Event) -> None:
        """Raise unless `event` may happen now.

        Raises:
            BadTransition: nothing was done.
        """
        if event not in MOVES[self.state]:
            message = (
                f"transactional.id {self._name}: {event.value} is not possible while the producer "
                f"is {self.state.value}; {_ADVICE[self.state]}"
            )
            raise BadTransition(KafkaError(KafkaError._STATE, message))  # noqa: SLF001

    def move(self, event: Event) -> None:
        """Enter the next state for `event`.

        Raises:
            BadTransition: `event` cannot happen in this state.
        """
        self.require(event)
        self.state = MOVES[self.state][event]
