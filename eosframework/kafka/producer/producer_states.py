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


class ProducerState(StrEnum):
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


_ANYWHERE: dict[Event, ProducerState] = {
    Event.FENCED: ProducerState.FENCED,
    Event.FAILED: ProducerState.FAILED,
    Event.CLOSED: ProducerState.CLOSED,
}

MOVES: dict[ProducerState, dict[Event, ProducerState]] = {
    ProducerState.NEW: {Event.INITED: ProducerState.READY, **_ANYWHERE},
    ProducerState.READY: {
        Event.BEGUN: ProducerState.IN_TRANSACTION,
        Event.DOUBTED: ProducerState.SUSPECT,
        Event.RECYCLED: ProducerState.READY,
        **_ANYWHERE,
    },
    ProducerState.IN_TRANSACTION: {
        Event.OFFSETS_SENT: ProducerState.IN_TRANSACTION,
        Event.COMMIT_SENT: ProducerState.UNDECIDED,
        Event.ABORTED: ProducerState.SUSPECT,
        Event.RECYCLED: ProducerState.READY,
        **_ANYWHERE,
    },
    ProducerState.UNDECIDED: {
        Event.COMMIT_SENT: ProducerState.UNDECIDED,
        Event.COMMITTED: ProducerState.ENDED,
        Event.REFUSED: ProducerState.IN_TRANSACTION,
        Event.ABORTED: ProducerState.SUSPECT,
        Event.RECYCLED: ProducerState.READY,
        **_ANYWHERE,
    },
    ProducerState.ENDED: {
        Event.VERIFIED: ProducerState.READY,
        Event.DOUBTED: ProducerState.SUSPECT,
        Event.RECYCLED: ProducerState.READY,
        **_ANYWHERE,
    },
    ProducerState.SUSPECT: {
        Event.ABORTED: ProducerState.SUSPECT,
        Event.VERIFIED: ProducerState.READY,
        Event.RECYCLED: ProducerState.READY,
        **_ANYWHERE,
    },
    ProducerState.FENCED: {Event.RECYCLED: ProducerState.READY, **_ANYWHERE},
    ProducerState.FAILED: {Event.RECYCLED: ProducerState.READY, **_ANYWHERE},
    ProducerState.CLOSED: {Event.CLOSED: ProducerState.CLOSED},
}
"""Next state by state and event; an event without an entry is not allowed."""

_ADVICE: dict[ProducerState, str] = {
    ProducerState.NEW: "call init_transactions() first",
    ProducerState.READY: "call begin_transaction() first",
    ProducerState.IN_TRANSACTION: "commit or abort the open transaction first",
    ProducerState.UNDECIDED: (
        "call commit_transaction() again, or recycle() and read committed offsets"
    ),
    ProducerState.ENDED: "verify() the commit first",
    ProducerState.SUSPECT: "call begin_transaction() or recycle()",
    ProducerState.FENCED: "if this process still owns the id, recycle(); otherwise close()",
    ProducerState.FAILED: "fix what the error named, then recycle(); or close()",
    ProducerState.CLOSED: "make a new producer",
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
        self.state = ProducerState.NEW

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
