"""Read access to the stores of a worker's tasks for other threads.

A store supports readers during a write, but not during a close: a reader inside RocksDB keeps the
files open, and the next owner of the partition cannot open them. So readers and the calls that
close or clear a store take a lock in turn. A reader takes it for one entry, or for a few hundred of
a scan, up to `SCAN_BYTES`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from eosframework.engine.operators.store_transaction import CommittedStore
from eosframework.engine.stores.state_ports import Changes, Reached, StoreStats, TaskStores
from eosframework.serialization.bounds import SCAN_BYTES

ENTRIES_PER_TURN = 256


class StoresGone(Exception):
    """The task was released; another worker has its stores."""


class SharedStores:
    """The stores of all tasks of this worker."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, int], _Guarded] = {}

    def share(self, sub_topology: str, partition: int, stores: TaskStores) -> TaskStores:
        """Return the stores of a task for the main thread, guarded for readers."""
        guarded = _Guarded(stores)
        self._tasks[sub_topology, partition] = guarded
        return guarded

    def mark_up_to_date(self, sub_topology: str, partition: int) -> None:
        """Allow reads of a task's stores: they have every committed record."""
        task = self._tasks.get((sub_topology, partition))
        if task is not None:
            task.is_up_to_date = True

    def partitions(self, sub_topology: str) -> dict[int, bool]:
        """Return the local partitions, and for each whether it can be read yet."""
        return {
            partition: task.is_up_to_date
            for (name, partition), task in sorted(list(self._tasks.items()))
            if name == sub_topology and not task.is_closed
        }

    @property
    def waiting(self) -> int:
        """The number of tasks that are not up to date."""
        tasks = list(self._tasks.values())
        return sum(not task.is_closed and not task.is_up_to_date for task in tasks)

    def content(self, sub_topology: str, partition: int, store: str) -> CommittedStore:
        """Return the content of a store, for any thread.

        Raises:
            StoresGone: this worker does not have the task; later reads may raise it as well.
        """
        return _Content(self._open_task(sub_topology, partition), store)

    def position(self, sub_topology: str, partition: int, store: str) -> int | None:
        """Return the changelog position of a store; None: it is empty.

        Raises:
            StoresGone: this worker does not have the task.
        """
        task = self._open_task(sub_topology, partition)
        with task.turn:
            return task.require_open().position(store)

    def reached(self, sub_topology: str, partition: int) -> Reached | None:
        """Return the last transaction that a task's stores have; None: unknown.

        Raises:
            StoresGone: this worker does not have the task.
        """
        return self._open_task(sub_topology, partition).reached

    def stats(self) -> list[StoreStats]:
        """Return the sizes of the stores of each task."""
        found: list[StoreStats] = []
        for task in list(self._tasks.values()):
            with task.turn:
                found += () if task.is_closed else task.stats()
        return found

    def stream_time(self, sub_topology: str, partition: int) -> int | None:
        """Return the stream time up to which entries may have expired; None: unknown.

        Raises:
            StoresGone: this worker does not have the task.
        """
        return self._open_task(sub_topology, partition).stream_time

    def _open_task(self, sub_topology: str, partition: int) -> _Guarded:
        task = self._tasks.get((sub_topology, partition))
        if task is None or task.is_closed:
            raise StoresGone
        return task


class _Guarded:
    """The stores of a task; closing and clearing wait for readers. See `TaskStores`."""

    def __init__(self, stores: TaskStores) -> None:
        self.turn = threading.Lock()
        self.is_up_to_date = False
        self.is_closed = False
        self._stores = stores

    def require_open(self) -> TaskStores:
        """Return the stores; the caller holds the lock."""
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

    @property
    def reached(self) -> Reached | None:
        return self._stores.reached

    def write(
        self,
        changes: Mapping[str, Changes],
        positions: Mapping[str, int],
        stream_time: int | None = None,
        whole_at: float | None = None,
        reached: Reached | None = None,
    ) -> None:
        # Stores support readers during a write; waiting for them here would slow each commit.
        self._stores.write(changes, positions, stream_time, whole_at, reached)

    def clear(self, name: str) -> None:
        with self.turn:
            self._stores.clear(name)

    def close(self) -> None:
        with self.turn:
            self.is_closed = True
            self._stores.close()


class _Content:
    """A store of a task, read in turns; see `CommittedStore`."""

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
                chunk = list(_some(entries))


def _some(entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of one turn."""
    size = 0
    for key, value in islice(entries, ENTRIES_PER_TURN):
        yield key, value
        size += len(key) + len(value)
        if size >= SCAN_BYTES.value:
            return
