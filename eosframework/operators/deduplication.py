"""The first record of each key within a time, and none of its repetitions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import orjson

from eosframework.operators.store_transaction import StoreSession
from eosframework.operators.windows.closing import Alarm, Closed, Result
from eosframework.operators.windows.window_entries import START
from eosframework.operators.windows.window_slices import SlicedOperator
from eosframework.serialization.strict_json import write_with
from eosframework.topology.spec.window_spec import Window


class Deduplication(SlicedOperator):
    """Lets a record go on if none like it did less than a time before or after it.

    What is that time or more behind stream time is late: whether it repeats another one is not
    known any more. A record is remembered for as long as one that is not late can repeat it,
    under the slice of time that it is in: no two that went on are in the same one.

    Args:
        by: what records have to share besides the key; None: nothing.
    """

    def __init__(
        self,
        session: StoreSession,
        window: Window,
        alarm: Alarm,
        by: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(session, window, alarm, 3 * window.size_ms)
        self._within_ms = window.size_ms
        self._by = by

    def update(self, key: bytes, value: Any, timestamp: int, now: int) -> Sequence[Result] | None:
        """Return the record, or nothing if one like it went on."""
        within = self._within_ms
        if timestamp + within <= now:
            return None
        identity = key if self._by is None else _identity(key, self._by(value))
        slice_ = timestamp // within * within
        for start in (slice_, slice_ - within, slice_ + within):
            if 0 <= start <= now:
                seen = self._session.get(START.pack(start) + identity)
                if seen is not None and abs(seen[1] - timestamp) < within:
                    return ()
        self._began(slice_)
        self._session.put(START.pack(slice_) + identity, (b"", timestamp))
        return ((value, timestamp),)

    def closing(self, now: int) -> Generator[Closed]:
        """Forget what cannot be repeated any more; nothing goes on."""
        for _ in self._ending(now):
            pass
        yield from ()

    def changed(self) -> Iterator[Closed]:
        """Nothing: records go on at once."""
        yield from ()


def _identity(key: bytes, shared: Any) -> bytes:
    """Two pairs have the same bytes only if both parts are the same."""
    return START.pack(len(key)) + key + write_with(shared, option=orjson.OPT_SORT_KEYS)
