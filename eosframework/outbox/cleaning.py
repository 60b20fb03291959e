"""Retention of sent messages: they are deleted some time after their position was committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from eosframework.outbox.relay_position import RelayPosition

STEP_SECONDS = 0.5
"""Committed positions of a shard that are closer together than this are cleaned as one."""


class Cleaning:
    """Remembers committed positions until the messages before them may be deleted.

    Args:
        keep_seconds: retention of messages after they were sent.
        clock: monotonic, in seconds.
    """

    def __init__(self, keep_seconds: float, clock: Callable[[], float]) -> None:
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._waiting: dict[int, deque[tuple[float, RelayPosition]]] = {}

    def committed(self, shard: int, position: RelayPosition) -> None:
        """Note a committed position."""
        now = self._clock()
        waiting = self._waiting.setdefault(shard, deque())
        if len(waiting) > 1 and now - waiting[-2][0] < STEP_SECONDS:
            waiting.pop()
        waiting.append((now, position))

    def due(self) -> list[tuple[int, RelayPosition]]:
        """Return for each shard the newest position that is old enough."""
        limit = self._clock() - self._keep_seconds
        found: list[tuple[int, RelayPosition]] = []
        for shard, waiting in self._waiting.items():
            while len(waiting) > 1 and waiting[1][0] <= limit:
                waiting.popleft()
            if waiting and waiting[0][0] <= limit:
                found.append((shard, waiting[0][1]))
        return found

    def done(self, shard: int, position: RelayPosition) -> None:
        """Note that all messages up to a position are deleted."""
        waiting = self._waiting[shard]
        while waiting and waiting[0][1].through <= position.through:
            waiting.popleft()

    def forget(self, shard: int) -> None:
        """Drop the positions of a shard that another relay takes over and cleans."""
        self._waiting.pop(shard, None)
