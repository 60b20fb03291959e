"""Stores in memory, which are restored from their changelogs at each start."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from weakref import WeakSet

from sortedcontainers import SortedDict  # pyright: ignore[reportMissingTypeStubs]

from eosframework.engine.stores.state_ports import (
    Changes,
    Reached,
    StoreIdentity,
    StoreStats,
    TaskStores,
)
from eosframework.state.manifest import require_positions

CHUNK = 64

MEASURED_ENTRIES = 1000
"""Number of entries from which the size of a store is estimated."""


class MemoryState:
    """The stores of a process's tasks in its memory; see `StateBackend`."""

    def open(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> MemoryTaskStores:
        """Return empty stores for a task."""
        return MemoryTaskStores(stores)

    def keep_copy(
        self, task: str, partitions: int, stores: Sequence[StoreIdentity]
    ) -> MemoryTaskStores:
        """Return an empty copy of a task's stores."""
        return self.open(task, partitions, stores)

    def own(self, stores: TaskStores) -> None:
        """Turn a copy into the stores of a task that runs here."""

    def close(self) -> None:
        """Do nothing: each task's stores are closed with the task."""


class MemoryStore:
    """The entries of one store; a thread may read while another one writes."""

    def __init__(self) -> None:
        self._entries: Any = SortedDict()
        self._turn = threading.Lock()
        self._scans: WeakSet[_Scan] = WeakSet()

    def get(self, key: bytes) -> bytes | None:
        """Return the entry of a key."""
        return self._entries.get(key)

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with `first <= key < last` of a snapshot taken now, in byte order."""
        if last is not None and last < first:
            return iter(())
        scan = _Scan(self._entries, self._turn, first, last, reverse=reverse)
        self._scans.add(scan)
        return scan.entries()

    def apply(self, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Put entries; a value of None deletes the entry."""
        entries = self._entries
        with self._turn:
            self._settle()
            for key, value in changes:
                if value is None:
                    entries.pop(key, None)
                else:
                    entries[key] = value

    def clear(self) -> None:
        """Delete all entries."""
        with self._turn:
            self._settle()
            self._entries.clear()

    def stats(self, name: str) -> StoreStats:
        """Return the size of the store."""
        with self._turn:
            keys = len(self._entries)
            some: list[tuple[bytes, bytes]] = list(islice(self._entries.items(), MEASURED_ENTRIES))
        size = sum(sys.getsizeof(key) + sys.getsizeof(value) for key, value in some)
        whole = size * keys // len(some) if some else 0
        return StoreStats(name, keys=keys, disk_bytes=0, memory_bytes=whole)

    def _settle(self) -> None:
        for scan in list(self._scans):
            scan.settle()


class _Scan:
    """A scan that reads lazily, and reads all remaining entries just before the store changes."""

    def __init__(
        self,
        entries: Any,
        turn: threading.Lock,
        first: bytes,
        last: bytes | None,
        *,
        reverse: bool,
    ) -> None:
        self._entries = entries
        self._turn = turn
        self._keys: Any = entries.irange(first, last, inclusive=(True, False), reverse=reverse)
        self._read: deque[tuple[bytes, bytes]] = deque()

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the remaining entries."""
        while True:
            with self._turn:
                if not self._read:
                    self._read_on(CHUNK)
                chunk, self._read = self._read, deque()
            if not chunk:
                return
            yield from chunk

    def settle(self) -> None:
        """Read all remaining entries; the caller holds the lock."""
        self._read_on(None)

    def _read_on(self, count: int | None) -> None:
        self._read.extend((key, self._entries[key]) for key in islice(self._keys, count))


class MemoryTaskStores:
    """All stores of one task; see `TaskStores`.

    Args:
        stores: of the task.
    """

    def __init__(self, stores: Sequence[StoreIdentity]) -> None:
        self._stores = {store.name: MemoryStore() for store in stores}
        self._positions: dict[str, tuple[int, float]] = {}
        self.stream_time: int | None = None
        self.reached: Reached | None = None

    def store(self, name: str) -> MemoryStore:
        """Return the entries of a store."""
        return self._stores[name]

    def position(self, name: str) -> int | None:
        """Return the next offset of the changelog to apply; None: the store is empty."""
        return self._positions[name][0] if name in self._positions else None

    def written_at(self, name: str) -> float | None:
        """Return the time of the store's last write, in seconds since the epoch; None: never."""
        return self._positions[name][1] if name in self._positions else None

    def write(
        self,
        changes: Mapping[str, Changes],
        positions: Mapping[str, int],
        stream_time: int | None = None,
        whole_at: float | None = None,
        reached: Reached | None = None,
    ) -> None:
        """Apply changes and the positions that follow them; see `TaskStores`.

        Raises:
            ValueError: a store is changed without a position; nothing was applied.
        """
        require_positions(changes, positions)
        listed = {self._stores[name]: list(entries) for name, entries in changes.items()}
        for store, entries in listed.items():
            store.apply(entries)
        now = time.time() if whole_at is None else whole_at
        self._positions.update({name: (position, now) for name, position in positions.items()})
        if stream_time is not None:
            self.stream_time = stream_time
        self.reached = reached or self.reached

    def clear(self, name: str) -> None:
        """Delete a store's content and position."""
        self._stores[name].clear()
        self._positions.pop(name, None)

    def stats(self) -> list[StoreStats]:
        """Return the size of each store."""
        return [store.stats(name) for name, store in self._stores.items()]

    def close(self) -> None:
        """Delete all stores."""
        self._stores.clear()
        self._positions.clear()
