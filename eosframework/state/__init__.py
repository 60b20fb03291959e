"""State stores of tasks on this machine, which contain committed values only.

The package opens, reads, writes and discards the files, and limits the memory that RocksDB uses.
Files that belong to another topology or are damaged are discarded, and the store is restored from
its changelog. The package knows neither Kafka nor transactions; it alone imports rocksdict.

Internal: no module here is public.
"""

from __future__ import annotations

from eosframework.config import StateBackendKind, StateSettings
from eosframework.engine.stores.state_ports import CopyBackend
from eosframework.state.memory import MemoryState


def state_backend(settings: StateSettings, application: str, slot: str) -> CopyBackend:
    """Return the backend that opens the stores of a worker's tasks.

    Args:
        settings: of the state.
        application: name of the application.
        slot: the worker's instance name.

    Raises:
        ConfigurationError: a name cannot be the name of a directory.
    """
    if settings.backend is StateBackendKind.MEMORY:
        return MemoryState()
    # Import RocksDB only for stores on disk.
    from eosframework.state.rocksdb_backend import RocksState

    return RocksState(settings, application, slot)


__all__ = ["MemoryState", "state_backend"]
