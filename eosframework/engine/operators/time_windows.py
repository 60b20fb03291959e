"""Tumbling and hopping windows: their starts are the same for all keys.

They are multiples of a time, or the midnights of a time zone.
"""

from __future__ import annotations

import platform
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sortedcontainers import SortedList  # pyright: ignore[reportMissingTypeStubs]

from eosframework.engine.operators.entries import Entry
from eosframework.engine.operators.folds import Fold
from eosframework.engine.operators.store_transaction import StoreTransaction
from eosframework.engine.operators.windows import (
    MARK_KEY,
    NEVER,
    START,
    Alarm,
    Closed,
    Result,
    WindowOperator,
)
from eosframework.errors import RunError
from eosframework.records import WindowResult
from eosframework.serialization.key_bytes import sorted_json
from eosframework.topology.spec.keyed_spec import Window
from eosframework.topology.spec.zone_days import rules_of

_STARTS_AT_ONCE = 1000
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
        return list(islice(self._order.irange(None, last), _STARTS_AT_ONCE))

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
    """Tracks the starts of the windows in its store."""

    def __init__(self, store: StoreTransaction, window: Window, alarm: Alarm) -> None:
        super().__init__(store, window, alarm)
        self._starts = WindowStarts()
        self._next = b""
        """The key after the last removed entry: a scan from its start would pass all removals."""

    @abstractmethod
    def needed_until(self, start: int) -> int:
        """Return the stream time from which the entries with a start are not needed."""

    @abstractmethod
    def last_ended(self, now: int) -> int:
        """Return a start; entries with it or an earlier one are not needed at a stream time."""

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
        return self.needed_until(self._starts.first) if self._starts else NEVER

    def last_close(self) -> int:
        """Return the end of the last start."""
        return self.needed_until(self._starts.last) if self._starts else 0

    def _began(self, start: int) -> None:
        """Note that an entry with this start exists."""
        if start not in self._starts.known:
            self._starts.add(start)
            self.alarm.set(self.needed_until(start))

    def _ending(self, now: int) -> Iterator[tuple[int, bytes, Entry]]:
        """Yield start, key and entry of the entries that have ended; each is removed after it."""
        while ended := self._starts.up_to(self.last_ended(now)):
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


class Deduplication(SlicedOperator):
    """Passes a record on unless an equal one came less than `within` before or after it.

    A record at least `within` older than stream time is late, because the record that it may repeat
    is no longer known. A record is remembered, under the slice of time that contains it, for as
    long as a record that is not late can repeat it. Two records that were passed on never share a
    slice.

    Args:
        by: returns the value that repeated records share besides the key; None: the key alone.
    """

    def __init__(
        self,
        store: StoreTransaction,
        window: Window,
        alarm: Alarm,
        by: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(store, window, alarm)
        self._within_ms = window.size_ms
        self._by = by

    def needed_until(self, start: int) -> int:
        """Return when no record can repeat one of a slice: its own length, and twice `within`."""
        return start + 3 * self._within_ms

    def last_ended(self, now: int) -> int:
        """Return the last slice that is not needed."""
        return now - 3 * self._within_ms

    def update(self, key: bytes, value: Any, timestamp: int, now: int) -> Sequence[Result] | None:
        """Return the record, or nothing if an equal one was passed on."""
        within = self._within_ms
        if timestamp + within <= now:
            return None
        identity = key if self._by is None else _identity(key, self._by(value))
        slice_ = timestamp // within * within
        for start in (slice_, slice_ - within, slice_ + within):
            if 0 <= start <= now:
                seen = self._store.get(START.pack(start) + identity)
                if seen is not None and abs(seen[1] - timestamp) < within:
                    return ()
        self._began(slice_)
        self._store.put(START.pack(slice_) + identity, (b"", timestamp))
        return ((value, timestamp),)

    def closing(self, now: int) -> Generator[None]:
        """Remove the records that can no longer be repeated."""
        for _ in self._ending(now):
            yield None

    def changed(self) -> Iterator[Closed]:
        """Yield nothing: records are emitted at once."""
        yield from ()


def _identity(key: bytes, shared: Any) -> bytes:
    """Return unambiguous bytes for a key and a value."""
    return START.pack(len(key)) + key + sorted_json(shared)


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
        super().__init__(store, window, alarm)
        self._fold = fold
        self._size_ms = window.size_ms
        self._every_ms = window.every_ms or window.size_ms
        self._lasts_ms = window.size_ms + window.grace_ms
        self._shows_updates = shows_updates

    def needed_until(self, start: int) -> int:
        """Return when a window closes."""
        return start + self._lasts_ms

    def last_ended(self, now: int) -> int:
        """Return the last start of a window that has closed."""
        return now - self._lasts_ms

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
        end_of = self.window.end_of
        for start, key, (value, timestamp) in self._ending(now):
            yield key, WindowResult(start, end_of(start), value), timestamp

    def changed(self) -> Iterator[Closed]:
        """Yield the windows that the open transaction changed."""
        for store_key, entry in self._store.changed_entries():
            if entry is not None and len(store_key) >= START.size:
                start = self._store.form.time_in(START, store_key)
                result = WindowResult(start, self.window.end_of(start), entry[0])
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


class ZoneWindows(AlignedWindows):
    """Folds records into days of a time zone, or into several of them; see `ZoneDays`.

    The end of a window follows from its start and the zone, so stores hold starts alone, as for
    windows of one length. If other data of the zone give a stored start another end, the window
    ends at the first midnight after its start.

    Raises:
        RunError: this machine does not know the zone, or knows other days of it than the one that
            loaded the topology: an executor of Spark may have other data.
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
        super().__init__(store, window, alarm, fold, shows_updates=shows_updates)
        self._bounds = (0, 0)
        """Of the last record's window: most records are of the same day."""
        assert window.zone is not None, "others are windows of one length"
        try:
            rules = rules_of(window.zone)
        except ValueError as error:
            raise RunError(f"{platform.node()}: {error}") from error
        if rules != window.zone_rules:
            raise RunError(
                f"{platform.node()}: the days of {window.zone} are others here than where the "
                f"topology was loaded; install the same release of tzdata on both machines"
            )

    def update(self, key: bytes, value: Any, timestamp: int, now: int) -> Sequence[Result] | None:
        """Fold a record into its window; return it if it is shown."""
        start, end = self._bounds
        if not start <= timestamp < end:
            start, end = self._bounds = self.window.aligned_around(timestamp)
        if end + self.window.grace_ms <= max(now, self._floor):
            return None
        value, latest = self._put(START.pack(start) + key, start, value, timestamp)
        return [(WindowResult(start, end, value), latest)] if self._shows_updates else []

    def needed_until(self, start: int) -> int:
        """Return when a window closes."""
        return self.window.end_of(start) + self.window.grace_ms

    def last_ended(self, now: int) -> int:
        """Return the last start of a window that has closed."""
        over = now - self.window.grace_ms
        return -1 if over < 0 else self.window.aligned_around(over)[0] - 1
