"""The states of a transaction session, as a table.

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
from enum import StrEnum


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
