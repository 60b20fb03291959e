"""The stores of one task in one RocksDB database: a column family each, and one for labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import orjson
from rocksdict import Rdict, WriteBatch

from eosframework.processing.stores.state_ports import (
    Changes,
    Reached,
    StoreIdentity,
    StoreStats,
)
from eosframework.state import manifest, rocksdb_errors
from eosframework.state.labels import (
    REACHED,
    STREAM_TIME,
    StoreLabel,
    decoded_reached,
    decoded_time,
    require_positions,
    store_key,
)
from eosframework.state.manifest import Manifest
from eosframework.state.rocksdb_column import Column
from eosframework.state.rocksdb_options import LABELS, DatabaseOptions

_STORE = "store."


def family_name(store: str) -> str:
    """Return the name of a store's column family."""
    return f"{_STORE}{store}"


def store_names(families: Sequence[str]) -> list[str]:
    """Return the names of the stores among column families, sorted."""
    return sorted(name.removeprefix(_STORE) for name in families if name.startswith(_STORE))


def drop_store(database: Rdict, store: str) -> None:
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
            drop_store(database, name)
            self._written.pop(name, None)
            column = database.create_column_family(family, self._setup.store)
            self._families[name] = database.get_column_family_handle(family)
        except Exception as error:
            raise rocksdb_errors.writing(self.directory, error) from error
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
            raise rocksdb_errors.writing(self.directory, error) from error

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
            raise rocksdb_errors.writing(self.directory, error) from error

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
