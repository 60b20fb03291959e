"""The states of a task, and the allowed transitions.

A task that failed is assigned again before it runs again:

    ASSIGNED ──state up to date, resumed──▶ RUNNING ──▶ RECOVERING ──▶ ASSIGNED
        │                                     │             ▲
        │                                     ▼             │
        │                                   FENCED ─────────┘
        └────────────────────────────────▶ CLOSED ◀── from every state

A task that is assigned leaves service, too, when the producer fails that it shares with others.
"""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """The state of a task."""

    ASSIGNED = "assigned"
    RUNNING = "running"
    RECOVERING = "recovering"
    FENCED = "fenced"
    CLOSED = "closed"


TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.ASSIGNED: frozenset(
        {TaskState.RUNNING, TaskState.RECOVERING, TaskState.FENCED, TaskState.CLOSED}
    ),
    TaskState.RUNNING: frozenset({TaskState.RECOVERING, TaskState.FENCED, TaskState.CLOSED}),
    TaskState.RECOVERING: frozenset({TaskState.ASSIGNED, TaskState.FENCED, TaskState.CLOSED}),
    TaskState.FENCED: frozenset({TaskState.RECOVERING, TaskState.CLOSED}),
    TaskState.CLOSED: frozenset(),
}
