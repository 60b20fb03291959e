"""The due times of keys, as index entries in a store, of which a bounded part is in memory.

An index entry lies under its time and the key. It may be too early, never too late: when it is due,
the key is checked, and noted for a later time if its windows are still open. So a session that
grows does not move an index entry with each record.
"""

from __future__ import annotations

from heapq import heappop, heappush, nsmallest
from itertools import islice

from eosframework.operators.entries import Entry
from eosframework.operators.store_transaction import StoreTransaction
from eosframework.operators.windows.closing import NEVER
from eosframework.operators.windows.window_entries import START

INDEX, DATA = b"\x00", b"\x01"
"""The prefix of index entries, and the prefix of all others."""

IN_MEMORY = 20_000
"""Index entries in memory after loading; at most twice as many later."""

_NOTHING: Entry = ((), 0)


class Agenda:
    """The index entries of one store.

    Args:
        store: the transaction of the store.
        in_memory: the number of entries kept in memory.
    """

    def __init__(self, store: StoreTransaction, in_memory: int = IN_MEMORY) -> None:
        self._store = store
        self._in_memory = in_memory
        self._near: list[tuple[int, bytes]] = []
        self._horizon: tuple[int, bytes] | None = None
        """The last entry in memory; None: all are."""

    def load(self) -> None:
        """Load the first entries into memory."""
        found = islice(self._store.scan(INDEX, DATA), self._in_memory)
        time_in = self._store.form.time_in
        self._near = [(time_in(START, key, 1), key[1 + START.size :]) for key, _ in found]
        is_all = len(self._near) < self._in_memory
        self._horizon = None if is_all else self._near[-1]

    def add(self, due: int, key: bytes, entry: Entry = _NOTHING) -> None:
        """Note a key for a time, with a value."""
        self._store.put(_index_key(due, key), entry)
        if self._horizon is not None and (due, key) > self._horizon:
            return
        heappush(self._near, (due, key))
        if len(self._near) > 2 * self._in_memory:
            self._near = nsmallest(self._in_memory, self._near)
            self._horizon = self._near[-1]

    def entry(self, due: int, key: bytes) -> Entry | None:
        """Return the value noted with a key for a time."""
        return self._store.get(_index_key(due, key))

    def change(self, due: int, key: bytes, entry: Entry) -> None:
        """Replace the value noted with a key."""
        self._store.put(_index_key(due, key), entry)

    def first(self) -> tuple[int, bytes] | None:
        """Return the earliest note with its time; None: there is none.

        It may be a note of a record that failed.
        """
        if not self._near and self._horizon is not None:
            self.load()
        return self._near[0] if self._near else None

    def due(self) -> int:
        """Return the time of the earliest note."""
        first = self.first()
        return NEVER if first is None else first[0]

    def cancel(self, due: int, key: bytes) -> bool:
        """Remove a note, and return whether it existed; it is invalid for `pass_first`."""
        was_one = self._store.get(_index_key(due, key)) is not None
        if was_one:
            self._store.delete(_index_key(due, key))
        return was_one

    def take_first(self) -> bool:
        """Remove the earliest note, and return whether it was valid."""
        due, key = self._near[0]
        was_one = self.pass_first()
        if was_one:
            self.cancel(due, key)
        return was_one

    def pass_first(self) -> bool:
        """Advance past the earliest note, and return whether it was valid.

        A note is invalid if it was cancelled, noted twice, or noted by a record that failed. It
        stays in the store until it is cancelled.
        """
        return self._store.get(_index_key(*heappop(self._near))) is not None

    def put_back(self, due: int, key: bytes) -> None:
        """Take back that a valid note was passed."""
        heappush(self._near, (due, key))

    def remove_first(self) -> None:
        """Remove the earliest note."""
        self._store.delete(_index_key(*heappop(self._near)))


def _index_key(due: int, key: bytes) -> bytes:
    return INDEX + START.pack(due) + key
