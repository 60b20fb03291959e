"""What there is to see of a relay at one moment, for whoever asks from another thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eosframework.outbox.outbox_ports import Backlog
from eosframework.processing.measurements import MeasuresSnapshot


@dataclass(slots=True)
class RelayCounts:
    """What a relay has done.

    Args:
        unknown_outcomes: commits of which it had to be found out whether they were done.
        database_retries: sessions that were lost or could not begin.
        refused: messages that were set aside.
        unreadable: entries of the log under the outbox's name that are no message.
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
    """A relay.

    Args:
        shards: that it has, each with whether it is in service.
        stands_by: others have all shards.
        away: what it waits for; None: nothing.
        backlog: of its shards, by the last look; None: there was none yet.
    """

    counts: RelayCounts
    shards: Mapping[int, bool]
    stands_by: bool
    away: str | None
    measured: MeasuresSnapshot
    backlog: Backlog | None


def together(backlogs: Sequence[Backlog]) -> Backlog:
    """Return what waits in all shards of a relay."""
    messages = [found.messages for found in backlogs if found.messages is not None]
    oldest = [found.oldest_seconds for found in backlogs if found.oldest_seconds is not None]
    logs = [found.log_bytes for found in backlogs if found.log_bytes is not None]
    return Backlog(
        sum(messages) if messages else None,
        max(oldest, default=None),
        max(logs, default=None),
    )
