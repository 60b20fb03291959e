"""Starts of windows, or numbers of slices, of which there may be many; in their order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sortedcontainers import SortedList  # pyright: ignore[reportMissingTypeStubs]


class Starts:
    """A set of numbers, of which the first ones go out: that costs the same however many there are.

    Attributes:
        known: the numbers, for who asks for each record; it is not changed elsewhere.
    """

    def __init__(self) -> None:
        self.known: set[int] = set()
        self._order: Any = SortedList()

    def __len__(self) -> int:
        return len(self.known)

    @property
    def first(self) -> int:
        """The lowest number; there has to be one."""
        return self._order[0]

    @property
    def last(self) -> int:
        """The highest number; there has to be one."""
        return self._order[-1]

    def add(self, start: int) -> bool:
        """Add a number, and tell whether it is a new one."""
        if start in self.known:
            return False
        self.known.add(start)
        self._order.add(start)
        return True

    def up_to(self, last: int) -> list[int]:
        """Return the numbers up to one, in order."""
        return list(self._order.irange(None, last))

    def discard(self, starts: Iterable[int]) -> None:
        """Take numbers out; those that are not there are passed over."""
        for start in starts:
            if start in self.known:
                self.known.remove(start)
                self._order.remove(start)

    def clear(self) -> None:
        """Take all out."""
        self.known.clear()
        self._order.clear()
