"""The stores on this machine: what tasks remember, committed values only.

It owns the files (whose they are, how they are opened, read, written and discarded) and the
memory that they may take. It refuses what was made for something else or is damaged, which is
discarded and filled again from the changelog; it knows neither Kafka nor transactions, and it is
the only importer of rocksdict.
"""

from __future__ import annotations

from eosframework.config import StateBackendKind, StateSettings
from eosframework.processing.stores.state_ports import CopyBackend
from eosframework.state.memory import MemoryState


def state_backend(settings: StateSettings, application: str, slot: str) -> CopyBackend:
    """Return what keeps the stores of a worker.

    Args:
        settings: of the state.
        application: whose stores they are.
        slot: the worker's instance name.

    Raises:
        ConfigurationError: a name cannot be that of a directory.
    """
    if settings.backend is StateBackendKind.MEMORY:
        return MemoryState()
    # Whoever has no stores on disk needs no RocksDB.
    from eosframework.state.rocks import RocksState

    return RocksState(settings, application, slot)


__all__ = ["MemoryState", "state_backend"]
