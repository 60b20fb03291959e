"""Stores in memory that survive a worker, as files do."""

from __future__ import annotations

from collections.abc import Sequence

from eosframework.processing.stores.state_ports import StoreIdentity, TaskStores
from eosframework.state.memory import MemoryTaskStores


class KeptState:
    """The stores of one machine; see `StateBackend`."""

    def __init__(self) -> None:
        self._tasks: dict[str, _KeptStores] = {}

    def open(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> TaskStores:
        """Return a task's stores with their previous content."""
        return self._tasks.setdefault(task, _KeptStores(stores))

    def of(self, sub_topology: str) -> list[TaskStores]:
        """Return the stores of all tasks of a sub-topology."""
        return [
            stores
            for task, stores in self._tasks.items()
            if task.rpartition("-")[0] == sub_topology
        ]

    def close(self) -> None:
        """Keep all stores."""


class _KeptStores(MemoryTaskStores):
    def close(self) -> None:
        """Keep the content."""
