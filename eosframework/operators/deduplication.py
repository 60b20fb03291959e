"""Deduplication: the first record of each key within an interval."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from eosframework.operators.store_transaction import StoreTransaction
from eosframework.operators.windows.closing import Alarm, Closed, Result
from eosframework.operators.windows.window_entries import START
from eosframework.operators.windows.window_slices import SlicedOperator
from eosframework.serialization.key_bytes import sorted_json
from eosframework.topology.spec.window_spec import Window


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
        super().__init__(store, window, alarm, 3 * window.size_ms)
        self._within_ms = window.size_ms
        self._by = by

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
