"""A sorted set of window starts or slice numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sortedcontainers import SortedList  # pyright: ignore[reportMissingTypeStubs]


class WindowStarts:
    """A sorted set of numbers; removing the lowest ones costs the same however many it has.

    Attributes:
        known: the numbers, for a fast check with each record; read-only for callers.
    """

    def __init__(self) -> None:
        self.known: set[int] = set()
        self._order: Any = SortedList()

    def __len__(self) -> int:
        return len(self.known)

    @property
    def first(self) -> int:
        """The lowest number; the set must not be empty."""
        return self._order[0]

    @property
    def last(self) -> int:
        """The highest number; the set must not be empty."""
        return self._order[-1]

    def add(self, start: int) -> bool:
        """Add a number, and return whether it is new."""
        if start in self.known:
            return False
        self.known.add(start)
        self._order.add(start)
        return True

    def up_to(self, last: int) -> list[int]:
        """Return the numbers up to and including `last`, in order."""
        return list(self._order.irange(None, last))

    def discard(self, starts: Iterable[int]) -> None:
        """Remove numbers; absent ones are ignored."""
        for start in starts:
            if start in self.known:
                self.known.remove(start)
                self._order.remove(start)

    def clear(self) -> None:
        """Remove all."""
        self.known.clear()
        self._order.clear()
