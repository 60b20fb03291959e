"""Stores in memory: nothing survives the process, so each start reads the changelogs again."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sortedcontainers import SortedDict

from eosframework.processing.state_ports import Changes, StoreIdentity
from eosframework.state.labels import require_positions
from eosframework.state.stats import StoreStats


class MemoryState:
    """The stores of a process's tasks in its memory; see `StateBackend`."""

    def open(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> MemoryTaskStores:
        """Return empty stores for a task."""
        return MemoryTaskStores(stores)

    def close(self) -> None:
        """Give everything up."""


class MemoryStore:
    """What one store holds; another thread may read while one writes."""

    def __init__(self) -> None:
        self._entries: Any = SortedDict()
        self._turn = threading.Lock()

    def get(self, key: bytes) -> bytes | None:
        """Return the entry of a key."""
        return self._entries.get(key)

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with `first <= key < last` in the order of their bytes, as of now."""
        if last is not None and last < first:
            return iter(())
        entries = self._entries
        with self._turn:
            keys = entries.irange(first, last, inclusive=(True, False), reverse=reverse)
            return iter([(key, entries[key]) for key in keys])

    def apply(self, changes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Put or, where there is None, delete entries."""
        entries = self._entries
        with self._turn:
            for key, value in changes:
                if value is None:
                    entries.pop(key, None)
                else:
                    entries[key] = value

    def clear(self) -> None:
        """Forget everything."""
        with self._turn:
            self._entries.clear()

    def stats(self, name: str) -> StoreStats:
        """Return how large the store is."""
        entries = self._entries
        size = sum(sys.getsizeof(k) + sys.getsizeof(v) for k, v in entries.items())
        return StoreStats(name, keys=len(entries), disk_bytes=0, memory_bytes=size)


class MemoryTaskStores:
    """All stores of one task; see `TaskStores`.

    Args:
        stores: of the task.
    """

    def __init__(self, stores: Sequence[StoreIdentity]) -> None:
        self._stores = {store.name: MemoryStore() for store in stores}
        self._positions: dict[str, tuple[int, float]] = {}

    def store(self, name: str) -> MemoryStore:
        """Return what one of them holds."""
        return self._stores[name]

    def position(self, name: str) -> int | None:
        """Return the next offset of the changelog to apply; None: the store is empty."""
        return self._positions[name][0] if name in self._positions else None

    def written_at(self, name: str) -> float | None:
        """Return when the store was last written, in seconds since the epoch."""
        return self._positions[name][1] if name in self._positions else None

    def write(self, changes: Mapping[str, Changes], positions: Mapping[str, int]) -> None:
        """Apply changes and the positions behind them, of any number of stores, atomically.

        Raises:
            ValueError: a store is changed without a position behind it; nothing was applied.
        """
        require_positions(changes, positions)
        listed = {self._stores[name]: list(entries) for name, entries in changes.items()}
        for store, entries in listed.items():
            store.apply(entries)
        now = time.time()
        self._positions.update({name: (position, now) for name, position in positions.items()})

    def clear(self, name: str) -> None:
        """Forget a store's content and position."""
        self._stores[name].clear()
        self._positions.pop(name, None)

    def stats(self) -> list[StoreStats]:
        """Return how large each store is."""
        return [store.stats(name) for name, store in self._stores.items()]

    def close(self) -> None:
        """Give the stores up, with all that they hold."""
        self._stores.clear()
        self._positions.clear()
