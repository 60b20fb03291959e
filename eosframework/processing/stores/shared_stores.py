"""The stores of a worker's tasks, for threads that only read.

Stores may be read by any thread while one writes, but not while they are closed: a reader inside
RocksDB keeps the files open, and whoever gets the partition next cannot open them. So readers and
what closes or empties a store take turns. A reader has its turn for one entry, or for a few hundred
of a scan.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from eosframework.operators.operator_ports import CommittedStore
from eosframework.processing.stores.state_ports import Changes, StoreStats, TaskStores

ENTRIES_PER_TURN = 256


class StoresGone(Exception):
    """The task was given up meanwhile; another worker has its stores."""


class SharedStores:
    """Knows the stores of all tasks that this worker has now."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, int], _Guarded] = {}

    def share(self, sub_topology: str, partition: int, stores: TaskStores) -> TaskStores:
        """Return the stores of a task as the main thread has to use them from now on."""
        guarded = _Guarded(stores)
        self._tasks[sub_topology, partition] = guarded
        return guarded

    def is_up_to_date(self, sub_topology: str, partition: int) -> None:
        """Let a task's stores be read: they have everything that was committed."""
        task = self._tasks.get((sub_topology, partition))
        if task is not None:
            task.is_up_to_date = True

    def partitions(self, sub_topology: str) -> dict[int, bool]:
        """Return the partitions that are here, and of each whether it can be read yet."""
        return {
            partition: task.is_up_to_date
            for (name, partition), task in sorted(list(self._tasks.items()))
            if name == sub_topology and not task.is_closed
        }

    @property
    def waiting(self) -> int:
        """How many tasks are not up to date yet."""
        tasks = list(self._tasks.values())
        return sum(not task.is_closed and not task.is_up_to_date for task in tasks)

    def content(self, sub_topology: str, partition: int, store: str) -> CommittedStore:
        """Return what a store holds, for any thread.

        Raises:
            StoresGone: this worker does not have the task; reading may find so later as well.
        """
        task = self._tasks.get((sub_topology, partition))
        if task is None or task.is_closed:
            raise StoresGone
        return _Content(task, store)

    def position(self, sub_topology: str, partition: int, store: str) -> int | None:
        """Return how far a store is in its changelog; None: it is empty.

        Raises:
            StoresGone: this worker does not have the task.
        """
        task = self._tasks.get((sub_topology, partition))
        if task is None:
            raise StoresGone
        with task.turn:
            return task.require_open().position(store)

    def stats(self) -> list[StoreStats]:
        """Return how large the stores of each task are."""
        found: list[StoreStats] = []
        for task in list(self._tasks.values()):
            with task.turn:
                found += () if task.is_closed else task.stats()
        return found

    def stream_time(self, sub_topology: str, partition: int) -> int | None:
        """Return up to which stream time entries may have expired; None: not known.

        Raises:
            StoresGone: this worker does not have the task.
        """
        task = self._tasks.get((sub_topology, partition))
        if task is None or task.is_closed:
            raise StoresGone
        return task.stream_time


class _Guarded:
    """The stores of a task; see `TaskStores`. What takes something away waits for readers."""

    def __init__(self, stores: TaskStores) -> None:
        self.turn = threading.Lock()
        self.is_up_to_date = False
        self.is_closed = False
        self._stores = stores

    def require_open(self) -> TaskStores:
        """Return the stores; whoever asks has the turn."""
        if self.is_closed:
            raise StoresGone
        return self._stores

    def store(self, name: str) -> CommittedStore:
        return self._stores.store(name)

    def position(self, name: str) -> int | None:
        return self._stores.position(name)

    def written_at(self, name: str) -> float | None:
        return self._stores.written_at(name)

    def stats(self) -> Sequence[StoreStats]:
        return self._stores.stats()

    @property
    def stream_time(self) -> int | None:
        return self._stores.stream_time

    def write(
        self,
        changes: Mapping[str, Changes],
        positions: Mapping[str, int],
        stream_time: int | None = None,
        whole_at: float | None = None,
    ) -> None:
        # Stores bear readers beside one writer; to wait for them here would cost each commit.
        self._stores.write(changes, positions, stream_time, whole_at)

    def clear(self, name: str) -> None:
        with self.turn:
            self._stores.clear(name)

    def close(self) -> None:
        with self.turn:
            self.is_closed = True
            self._stores.close()


class _Content:
    """A store of a task, an entry or a few hundred of them at a time; see `CommittedStore`."""

    def __init__(self, task: _Guarded, store: str) -> None:
        self._task = task
        self._store = store

    def get(self, key: bytes) -> bytes | None:
        with self._task.turn:
            return self._task.require_open().store(self._store).get(key)

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        with self._task.turn:
            stores = self._task.require_open()
            entries = stores.store(self._store).scan(first, last, reverse=reverse)
            chunk = list(islice(entries, 1))
        while chunk:
            yield from chunk
            with self._task.turn:
                self._task.require_open()
                chunk = list(islice(entries, ENTRIES_PER_TURN))
