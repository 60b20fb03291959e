"""The RocksDB backend: one database per task, with memory shared by all of them.

Files that are damaged or belong elsewhere are discarded when they are opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from rocksdict import Rdict, WriteBatch

from eosframework.config import StateSettings
from eosframework.errors import StateDamaged, StateUnwritable
from eosframework.processing.stores.state_ports import StoreIdentity, TaskStores
from eosframework.state import manifest, rocksdb_errors
from eosframework.state.labels import TASK, StoreLabel, TaskLabel, store_key
from eosframework.state.rocksdb_options import LABELS, DatabaseOptions, SharedMemory
from eosframework.state.rocksdb_stores import (
    RocksTaskStores,
    drop_store,
    family_name,
    store_names,
)
from eosframework.state.store_directories import (
    StoreDirectory,
    application_directory,
    has_database,
    refuse_path,
    take,
    take_own,
)


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
        self._open: dict[RocksTaskStores, StoreDirectory] = {}

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
        self, place: StoreDirectory, label: TaskLabel, stores: Sequence[StoreIdentity]
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
        self._memory.flush_largest(self._open)

    def _release(self, stores: RocksTaskStores) -> None:
        place = self._open.pop(stores)
        place.note(stores.last_written_at())
        place.release()


ALL_STORES = "all"

log = structlog.get_logger("eosframework.state")


@dataclass(frozen=True, slots=True)
class _Unusable:
    reason: str


def open_or_begin(
    place: StoreDirectory, setup: DatabaseOptions, label: TaskLabel, stores: Sequence[StoreIdentity]
) -> RocksTaskStores:
    """Open the database in a directory, or create a new one there.

    Args:
        place: a directory that this process has locked.
        setup: options of the database.
        label: the task that the database must belong to.
        stores: the stores' identities; a store with another identity is emptied.

    Raises:
        StateUnwritable: the disk refuses to open it.
    """
    opened = _open(place, setup, label, stores)
    if isinstance(opened, _Unusable):
        _report_discarded(place, ALL_STORES, opened.reason)
        try:
            place.empty()
        except OSError as error:
            raise StateUnwritable(
                f"the stores in {place.path} cannot be used and cannot be removed either: "
                f"{error.strerror}. Remove that directory and start again"
            ) from error
        opened = _open(place, setup, label, stores)
    if isinstance(opened, _Unusable):
        raise StateDamaged(
            f"a new database in {place.path} cannot be used: {opened.reason}. Check that disk, or "
            f"set state.directory to another one"
        )
    return opened


def _open(
    place: StoreDirectory, setup: DatabaseOptions, label: TaskLabel, stores: Sequence[StoreIdentity]
) -> RocksTaskStores | _Unusable:
    # An unusable database must not be referenced outside of this function: it would stay open.
    try:
        if reason := manifest.torn(place.path):
            return _Unusable(reason)
        families, manifests = _families(place), manifest.sizes(place.path)
        wanted = {LABELS, *families, *(family_name(store.name) for store in stores)}
        database = Rdict(str(place.path), setup.labels, setup.families(wanted))
        lacks = manifest.shortened(database.get(manifest.KEY), manifests)
        if reason := lacks or (_difference(database, label) if families else None):
            return _Unusable(reason)
        if not families:
            _put_label(database, label)
        labels = _usable(place, database, setup, stores, store_names(families))
        return RocksTaskStores(place.path, database, setup, stores, labels)
    except Exception as error:
        if rocksdb_errors.is_damage(error) or isinstance(error, ValueError):
            return _Unusable(rocksdb_errors.reason(error))
        raise rocksdb_errors.writing(place.path, error) from error


def _families(place: StoreDirectory) -> list[str]:
    return Rdict.list_cf(str(place.path)) if has_database(place.path) else []


def _difference(database: Rdict, label: TaskLabel) -> str | None:
    content = database.get(TASK)
    return TaskLabel.decode(content).difference(label) if content else "it has no label"


def _put_label(database: Rdict, label: TaskLabel) -> None:
    batch = WriteBatch(raw_mode=True)
    batch.set_default_column_family(database.get_column_family_handle(LABELS))
    batch[TASK] = label.encode()
    database.write(batch)


def _usable(
    place: StoreDirectory,
    database: Rdict,
    setup: DatabaseOptions,
    stores: Sequence[StoreIdentity],
    present: Sequence[str],
) -> dict[str, StoreLabel]:
    """Return the labels of the usable stores; the other stores are emptied or deleted."""
    labels: dict[str, StoreLabel] = {}
    for store in stores:
        content = database.get(store_key(store.name))
        label = StoreLabel.decode(content) if content else None
        reason = _store_difference(label, store, present)
        if label is not None and reason is None:
            labels[store.name] = label
        elif label is not None or store.name in present:
            drop_store(database, store.name)
            database.create_column_family(family_name(store.name), setup.store)
        if reason is not None:
            _report_discarded(place, store.name, reason)
    for name in set(present) - {store.name for store in stores}:
        drop_store(database, name)
        _report_discarded(place, name, "the topology has no such store")
    return labels


def _store_difference(
    label: StoreLabel | None, store: StoreIdentity, present: Sequence[str]
) -> str | None:
    if label is None:
        return None
    return label.difference(store) if store.name in present else "its content is gone"


def _report_discarded(place: StoreDirectory, store: str, reason: str) -> None:
    log.warning("state_discarded", directory=str(place.path), store=store, reason=reason)
