"""Entries under a start and a key: those with the same start end together."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.operators.entries import Entry
from eosframework.operators.store_transaction import StoreSession
from eosframework.operators.windows.closing import NEVER, Alarm, TimedOperator
from eosframework.operators.windows.window_entries import MARK_KEY, START
from eosframework.operators.windows.window_starts import Starts
from eosframework.topology.spec.window_spec import Window


class SlicedOperator(TimedOperator):
    """Knows the starts in its store.

    Args:
        lasts_ms: an entry with a start is needed until so long after it.
    """

    def __init__(self, session: StoreSession, window: Window, alarm: Alarm, lasts_ms: int) -> None:
        super().__init__(session, window, alarm)
        self._lasts_ms = lasts_ms
        self._starts = Starts()

    def load(self) -> None:
        """Find the starts: from each one straight to the next one."""
        self._starts.clear()
        first = b""
        while (found := next(iter(self._session.scan(first, MARK_KEY)), None)) is not None:
            start = START.unpack_from(found[0])[0]
            self._starts.add(start)
            first = START.pack(start + 1)

    def due(self) -> int:
        """Return when the first start has ended."""
        return self._starts.first + self._lasts_ms if self._starts else NEVER

    def last_close(self) -> int:
        """Return when the last start has ended."""
        return self._starts.last + self._lasts_ms if self._starts else 0

    def _began(self, start: int) -> None:
        """Note that there is an entry with this start."""
        if start not in self._starts.known:
            self._starts.add(start)
            self.alarm.set(start + self._lasts_ms)

    def _ending(self, now: int) -> Iterator[tuple[int, bytes, Entry]]:
        """Yield the entries that have ended: start, key and entry; each is then removed."""
        ended = self._starts.up_to(now - self._lasts_ms)
        if not ended:
            return
        # Starts that have ended have none between them that has not: one scan finds all of them.
        passed = iter(ended)
        current = next(passed)
        for store_key, entry in self._session.scan(START.pack(current), START.pack(ended[-1] + 1)):
            start: int = START.unpack_from(store_key)[0]
            while current < start:
                self._starts.discard((current,))
                current = next(passed)
            yield start, store_key[START.size :], entry
            self._session.delete(store_key)
        self._starts.discard(ended)
