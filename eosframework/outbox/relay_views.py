"""Snapshots of a relay, taken on the main thread and read by other threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eosframework.outbox.outbox_ports import Backlog
from eosframework.processing.measurements import Measured


@dataclass(slots=True)
class RelayCounts:
    """A relay's counters since its start.

    Args:
        unknown_outcomes: commits whose outcome was read from the control topic.
        database_retries: sessions that were lost or could not begin.
        refused: messages that were set aside.
        unreadable: log entries with the outbox's prefix that are not valid messages.
    """

    messages: int = 0
    commits: int = 0
    aborts: int = 0
    recycles: int = 0
    fences: int = 0
    unknown_outcomes: int = 0
    database_retries: int = 0
    refused: int = 0
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class RelayView:
    """A snapshot of a relay.

    Args:
        shards: the relay's shards, each with whether it is in service.
        stands_by: other relays have all shards.
        away: the unavailable system that the relay waits for; None: there is none.
        backlog: of the relay's shards, when it was last read; None: not yet.
    """

    counts: RelayCounts
    shards: Mapping[int, bool]
    stands_by: bool
    away: str | None
    measured: Measured
    backlog: Backlog | None


def together(backlogs: Sequence[Backlog]) -> Backlog:
    """Return the backlog of all shards of a relay."""
    messages = [found.messages for found in backlogs if found.messages is not None]
    oldest = [found.oldest_seconds for found in backlogs if found.oldest_seconds is not None]
    logs = [found.log_bytes for found in backlogs if found.log_bytes is not None]
    return Backlog(
        sum(messages) if messages else None,
        max(oldest, default=None),
        max(logs, default=None),
    )
