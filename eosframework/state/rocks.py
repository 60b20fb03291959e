"""The RocksDB backend: one database per task, with memory shared by all of them."""

from __future__ import annotations

from collections.abc import Sequence

from eosframework.config import StateSettings
from eosframework.processing.stores.state_ports import StoreIdentity, TaskStores
from eosframework.state.database import RocksTaskStores
from eosframework.state.labels import TaskLabel
from eosframework.state.opening import open_or_begin
from eosframework.state.places import (
    Place,
    application_directory,
    refuse_path,
    take,
    take_own,
)
from eosframework.state.tuning import SharedMemory


class RocksState:
    """The stores of a process's tasks on disk; see `StateBackend`.

    After SIGKILL the stores contain all writes. After a power failure they may lack the last
    writes, and their positions lack them too.

    Args:
        settings: directory and memory of the stores.
        application: name of the application.
        slot: this worker's instance name.

    Raises:
        ConfigurationError: a name cannot be the name of a directory.
    """

    def __init__(self, settings: StateSettings, application: str, slot: str) -> None:
        refuse_path("instance", slot)
        self._directory = application_directory(settings, application)
        self._application = application
        self._slot = slot
        self._memory = SharedMemory(settings.cache_bytes)
        self._open: dict[RocksTaskStores, Place] = {}

    def open(self, task: str, partitions: int, stores: Sequence[StoreIdentity]) -> RocksTaskStores:
        """Open a task's stores on this machine; missing and unusable ones are empty.

        Args:
            task: `sub_topology-partition`.
            partitions: number of the sub-topology's tasks.
            stores: the stores' identities.

        Raises:
            StateUnwritable: the disk refuses to open them.
        """
        place = take(self._directory / task, self._slot)
        return self._open_in(place, TaskLabel(self._application, task, partitions), stores)

    def keep_copy(
        self, task: str, partitions: int, stores: Sequence[StoreIdentity]
    ) -> RocksTaskStores:
        """Open this worker's standby copy of a task's stores; see `CopyBackend`.

        Raises:
            StateUnwritable: the disk refuses to open them.
        """
        place = take_own(self._directory / task, self._slot)
        opened = self._open_in(place, TaskLabel(self._application, task, partitions), stores)
        place.mark_copy()
        return opened

    def own(self, stores: TaskStores) -> None:
        """Turn a copy into the stores of a task that runs here."""
        for opened, place in self._open.items():
            if opened is stores:
                place.unmark_copy()

    def _open_in(
        self, place: Place, label: TaskLabel, stores: Sequence[StoreIdentity]
    ) -> RocksTaskStores:
        place.unmark_copy()
        try:
            opened = open_or_begin(place, self._memory.setup(), label, stores)
        except BaseException:
            place.release()
            raise
        self._open[opened] = place
        opened.after_write = self._after_write
        opened.on_close = lambda: self._release(opened)
        return opened

    def close(self) -> None:
        """Close all stores."""
        for stores in list(self._open):
            stores.close()

    def _after_write(self) -> None:
        self._memory.make_room(self._open)

    def _release(self, stores: RocksTaskStores) -> None:
        place = self._open.pop(stores)
        place.note(stores.last_written_at())
        place.release()
