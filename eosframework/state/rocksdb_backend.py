"""The RocksDB backend: one database per task, with memory shared by all of them.

Files that are damaged or belong elsewhere are discarded when they are opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson
import structlog
from rocksdict import Rdict, WriteBatch

from eosframework.config import StateSettings
from eosframework.engine.stores.state_ports import (
    Changes,
    Reached,
    StoreIdentity,
    StoreStats,
    TaskStores,
)
from eosframework.errors import StateDamaged, StateUnwritable
from eosframework.state import manifest
from eosframework.state.manifest import (
    REACHED,
    STREAM_TIME,
    TASK,
    Manifest,
    StoreLabel,
    TaskLabel,
    decoded_reached,
    decoded_time,
    require_positions,
    store_key,
)
from eosframework.state.rocksdb_column import (
    LABELS,
    Column,
    DatabaseOptions,
    SharedMemory,
    is_damage,
    reason_of,
    write_error,
)
from eosframework.state.store_directories import (
    StoreDirectory,
    application_directory,
    has_database,
    refuse_path,
    take,
    take_own,
)

_STORE = "store."


def family_name(store: str) -> str:
    """Return the name of a store's column family."""
    return f"{_STORE}{store}"


def store_names(families: Sequence[str]) -> list[str]:
    """Return the names of the stores among column families, sorted."""
    return sorted(name.removeprefix(_STORE) for name in families if name.startswith(_STORE))


def _drop_store(database: Rdict, store: str) -> None:
    """Delete a store's label, then its column family."""
    batch = WriteBatch(raw_mode=True)
    batch.set_default_column_family(database.get_column_family_handle(LABELS))
    del batch[store_key(store)]
    database.write(batch)
    database.drop_column_family(family_name(store))


def measure(store: str, column: Column) -> StoreStats:
    """Return the size of a store."""
    return StoreStats(
        store,
        keys=column.number("estimate-num-keys"),
        disk_bytes=column.number("total-sst-files-size"),
        memory_bytes=column.number("cur-size-all-mem-tables"),
    )


class RocksTaskStores:
    """All stores of one task; see `TaskStores`.

    Args:
        directory: of the database.
        database: opened with a column family for each store.
        setup: options of the database.
        stores: the identities that are written to the labels.
        labels: of stores that were written before.
    """

    def __init__(
        self,
        directory: Path,
        database: Rdict,
        setup: DatabaseOptions,
        stores: Sequence[StoreIdentity],
        labels: Mapping[str, StoreLabel],
    ) -> None:
        self.directory = directory
        self.after_write: Callable[[], None] = _nothing
        self.on_close: Callable[[], None] = _nothing
        self._setup = setup
        self._identities = {store.name: store for store in stores}
        self._written = dict(labels)
        self._database: Rdict | None = database
        self._manifest = Manifest(directory)
        self._labels = database.get_column_family_handle(LABELS)
        self.stream_time = decoded_time(database.get(STREAM_TIME))
        self.reached = decoded_reached(database.get(REACHED))
        names = {name: family_name(name) for name in self._identities}
        self._families = {n: database.get_column_family_handle(f) for n, f in names.items()}
        self._columns = {
            n: Column(directory, database.get_column_family(f)) for n, f in names.items()
        }

    def store(self, name: str) -> Column:
        """Return the entries of a store."""
        return self._columns[name]

    def position(self, name: str) -> int | None:
        """Return the next offset of the changelog to apply; None: the store is empty."""
        label = self._written.get(name)
        return None if label is None else label.position

    def written_at(self, name: str) -> float | None:
        """Return the time of the store's last write, in seconds since the epoch; None: never."""
        label = self._written.get(name)
        return None if label is None else label.written_at

    def last_written_at(self) -> float:
        """Return the time of the last write to any store, in seconds since the epoch; 0: never."""
        return max((label.written_at for label in self._written.values()), default=0.0)

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
            StateUnwritable: the disk refuses the write; nothing was applied.
            StateDamaged: the files cannot be read; nothing was applied.
        """
        require_positions(changes, positions)
        labels = self._next_labels(positions, time.time() if whole_at is None else whole_at)
        batch = WriteBatch(raw_mode=True)
        for name, entries in changes.items():
            batch.set_default_column_family(self._families[name])
            for key, value in entries:
                if value is None:
                    del batch[key]
                else:
                    batch[key] = value
        batch.set_default_column_family(self._labels)
        for name, label in labels.items():
            batch[store_key(name)] = label.encode()
        if stream_time is not None:
            batch[STREAM_TIME] = b"%d" % stream_time
        if reached is not None:
            batch[REACHED] = orjson.dumps(reached)
        if (news := self._manifest.news()) is not None:
            batch[manifest.KEY] = news
        self._apply(batch)
        self._written.update(labels)
        if stream_time is not None:
            self.stream_time = stream_time
        self.reached = reached or self.reached
        self.after_write()

    def clear(self, name: str) -> None:
        """Delete a store's content and position.

        A crash in between leaves content without a label, which is discarded at the next start.

        Raises:
            StateUnwritable: the disk refuses the write.
        """
        family, database = family_name(name), self._open()
        try:
            _drop_store(database, name)
            self._written.pop(name, None)
            column = database.create_column_family(family, self._setup.store)
            self._families[name] = database.get_column_family_handle(family)
        except Exception as error:
            raise write_error(self.directory, error) from error
        self._columns[name].replace(column)

    def stats(self) -> list[StoreStats]:
        """Return the size of each store."""
        return [measure(name, column) for name, column in self._columns.items()]

    def buffered_bytes(self) -> int:
        """Return the size of all active memtables."""
        return sum(column.number("cur-size-active-mem-table") for column in self._columns.values())

    def start_flush(self) -> None:
        """Start to flush the memtables, the labels first."""
        try:
            self._open().flush(wait=False)
            for column in self._columns.values():
                column.start_flush()
        except Exception as error:
            raise write_error(self.directory, error) from error

    def close(self) -> None:
        """Close the database; another process may open it."""
        if self._database is None:
            return
        for column in self._columns.values():
            column.release()
        # RocksDB closes when the last reference to it is dropped.
        self._families.clear()
        del self._labels
        database, self._database = self._database, None
        # Entries that are not flushed here are in the write-ahead log.
        with suppress(Exception):
            database.close()
        self.on_close()

    def _apply(self, batch: WriteBatch) -> None:
        try:
            self._open().write(batch)
        except Exception as error:
            raise write_error(self.directory, error) from error

    def _next_labels(
        self, positions: Mapping[str, int], written_at: float
    ) -> dict[str, StoreLabel]:
        return {
            name: StoreLabel(
                self._identities[name].changelog,
                self._identities[name].schema_version,
                position,
                written_at,
            )
            for name, position in positions.items()
        }

    def _open(self) -> Rdict:
        if self._database is None:
            raise RuntimeError(f"the stores in {self.directory} are closed; open them again")
        return self._database


def _nothing() -> None:
    pass


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
            opened = _open_or_begin(place, self._memory.setup(), label, stores)
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


_ALL_STORES = "all"

_log = structlog.get_logger("eosframework.state")


@dataclass(frozen=True, slots=True)
class _Unusable:
    reason: str


def _open_or_begin(
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
        _report_discarded(place, _ALL_STORES, opened.reason)
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
        if is_damage(error) or isinstance(error, ValueError):
            return _Unusable(reason_of(error))
        raise write_error(place.path, error) from error


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
            _drop_store(database, store.name)
            database.create_column_family(family_name(store.name), setup.store)
        if reason is not None:
            _report_discarded(place, store.name, reason)
    for name in set(present) - {store.name for store in stores}:
        _drop_store(database, name)
        _report_discarded(place, name, "the topology has no such store")
    return labels


def _store_difference(
    label: StoreLabel | None, store: StoreIdentity, present: Sequence[str]
) -> str | None:
    if label is None:
        return None
    return label.difference(store) if store.name in present else "its content is gone"


def _report_discarded(place: StoreDirectory, store: str, reason: str) -> None:
    _log.warning("state_discarded", directory=str(place.path), store=store, reason=reason)
