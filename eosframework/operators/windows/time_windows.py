"""Tumbling and hopping windows: their starts are multiples of a time, the same for all keys."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from eosframework.operators.folds import Fold
from eosframework.operators.store_transaction import StoreTransaction
from eosframework.operators.windows.closing import Alarm, Closed, Result
from eosframework.operators.windows.window_entries import START
from eosframework.operators.windows.window_slices import SlicedOperator
from eosframework.records import WindowResult
from eosframework.topology.spec.window_spec import Window


class AlignedWindows(SlicedOperator):
    """Folds records into the windows that contain their time (`TimeWindows` of Kafka Streams).

    A window closes when stream time reaches its end plus the grace. A record is late when all its
    windows are closed; otherwise it goes into those that are open.

    Args:
        fold: the aggregate of a window.
        shows_updates: whether `update` returns the windows that it changed.
    """

    def __init__(
        self,
        store: StoreTransaction,
        window: Window,
        alarm: Alarm,
        fold: Fold,
        *,
        shows_updates: bool,
    ) -> None:
        super().__init__(store, window, alarm, window.size_ms + window.grace_ms)
        self._fold = fold
        self._size_ms = window.size_ms
        self._every_ms = window.every_ms or window.size_ms
        self._shows_updates = shows_updates

    def update(self, key: bytes, value: Any, timestamp: int, now: int) -> Sequence[Result] | None:
        """Fold a record into its windows; return those that it changed."""
        closed = (now if now > self._floor else self._floor) - self._lasts_ms
        every = self._every_ms
        start = max(timestamp - self._size_ms + every, 0) // every * every
        if start <= closed:
            start += (closed - start) // every * every + every
        if start > timestamp:
            return None
        results: list[Result] = []
        while start <= timestamp:
            entry = self._put(START.pack(start) + key, start, value, timestamp)
            if self._shows_updates:
                results.append((WindowResult(start, start + self._size_ms, entry[0]), entry[1]))
            start += every
        return results

    def closing(self, now: int) -> Generator[Closed]:
        """Yield the windows that `now` closes, earliest start first."""
        for start, key, (value, timestamp) in self._ending(now):
            yield key, WindowResult(start, start + self._size_ms, value), timestamp

    def changed(self) -> Iterator[Closed]:
        """Yield the windows that the open transaction changed."""
        for store_key, entry in self._store.changed_entries():
            if entry is not None and len(store_key) >= START.size:
                start = self._store.form.time_in(START, store_key)
                result = WindowResult(start, start + self._size_ms, entry[0])
                yield store_key[START.size :], result, entry[1]

    def _put(self, store_key: bytes, start: int, value: Any, timestamp: int) -> Result:
        store = self._store
        before = store.get(store_key)
        if before is None:
            self._began(start)
            entry = self._fold.first(value), timestamp
        else:
            so_far, latest = before
            entry = self._fold.then(so_far, value), max(timestamp, latest)
        if entry[0] is None:
            store.delete(store_key)
        else:
            store.put(store_key, entry)
        return entry
