"""Windows stored under a start and a key: those with the same start end together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sortedcontainers import SortedList  # pyright: ignore[reportMissingTypeStubs]

from eosframework.operators.entries import Entry
from eosframework.operators.store_transaction import StoreTransaction
from eosframework.operators.windows.closing import NEVER, Alarm, WindowOperator
from eosframework.operators.windows.window_entries import MARK_KEY, START
from eosframework.topology.spec.window_spec import Window

STARTS_AT_ONCE = 1000
"""The most numbers of a listing: a transaction ends few of many."""


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
        """Return the first numbers up to and including `last`, in order; empty: there are none."""
        return list(islice(self._order.irange(None, last), STARTS_AT_ONCE))

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


class SlicedOperator(WindowOperator):
    """Tracks the starts of the windows in its store.

    Args:
        lasts_ms: the time from a start for which its entries are needed.
    """

    def __init__(
        self, store: StoreTransaction, window: Window, alarm: Alarm, lasts_ms: int
    ) -> None:
        super().__init__(store, window, alarm)
        self._lasts_ms = lasts_ms
        self._starts = WindowStarts()
        self._next = b""
        """The key after the last removed entry: a scan from its start would pass all removals."""

    def load(self) -> None:
        """Load the starts from the store, with one seek for each."""
        self._starts.clear()
        first = self._next = b""
        while (found := next(iter(self._store.scan(first, MARK_KEY)), None)) is not None:
            start = self._store.form.time_in(START, found[0])
            self._starts.add(start)
            first = START.pack(start + 1)

    def due(self) -> int:
        """Return the end of the first start."""
        return self._starts.first + self._lasts_ms if self._starts else NEVER

    def last_close(self) -> int:
        """Return the end of the last start."""
        return self._starts.last + self._lasts_ms if self._starts else 0

    def _began(self, start: int) -> None:
        """Note that an entry with this start exists."""
        if start not in self._starts.known:
            self._starts.add(start)
            self.alarm.set(start + self._lasts_ms)

    def _ending(self, now: int) -> Iterator[tuple[int, bytes, Entry]]:
        """Yield start, key and entry of the entries that have ended; each is removed after it."""
        while ended := self._starts.up_to(now - self._lasts_ms):
            # No open start lies between two that have ended, so one scan finds all of them.
            passed = iter(ended)
            current = next(passed)
            first, last = max(START.pack(current), self._next), START.pack(ended[-1] + 1)
            for store_key, entry in self._store.scan(first, last):
                start = self._store.form.time_in(START, store_key)
                while current < start:
                    self._starts.discard((current,))
                    current = next(passed)
                yield start, store_key[START.size :], entry
                self._store.delete(store_key)
                self._next = store_key + b"\0"
            self._starts.discard(ended)
