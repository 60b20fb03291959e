"""When what was sent may be removed from the outbox: a while after its position was committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from eosframework.outbox.relay_position import RelayPosition

STEP_SECONDS = 0.5
"""Positions of one shard that are closer together are cleaned behind in one go."""


class Cleaning:
    """Remembers committed positions until it is time to clean behind them.

    Args:
        keep_seconds: how long messages stay after they were sent.
        clock: seconds, monotonic.
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
        """Note that everything behind a position is removed."""
        waiting = self._waiting[shard]
        while waiting and waiting[0][1].through <= position.through:
            waiting.popleft()

    def forget(self, shard: int) -> None:
        """Leave a shard to another relay; that one cleans with its own positions."""
        self._waiting.pop(shard, None)
