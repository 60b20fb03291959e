"""Reading a task's stores while a worker has them open, or after it has ended.

RocksDB opens them read-only, without a lock and without changing data.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rocksdict import AccessType, Rdict

from eosframework.engine.stores.state_ports import StoreStats
from eosframework.errors import ConfigurationError, RunError
from eosframework.state import manifest
from eosframework.state.manifest import (
    STREAM_TIME,
    TASK,
    StoreLabel,
    TaskLabel,
    decoded_time,
    store_key,
)
from eosframework.state.rocksdb_backend import family_name, measure, store_names
from eosframework.state.rocksdb_column import LABELS, Column, SharedMemory, read_error
from eosframework.state.store_directories import has_database

CACHE_BYTES = 32 * 2**20

OPEN_SECONDS = 30.0
"""Time for which opening is retried while the worker changes its files."""

FAILURES = 3
"""Number of consecutive failures without a change of files after which they count as damaged."""

PAUSE_SECONDS = 0.02


class ReadOnlyStores:
    """The contents of a task's stores when they were opened.

    Args:
        directory: of the stores.
        database: opened read-only with all column families.
        families: names of the column families.
    """

    def __init__(self, directory: Path, database: Rdict, families: list[str]) -> None:
        self.directory = directory
        self._database: Rdict | None = database
        self._labels = Column(directory, database.get_column_family(LABELS))
        self._columns = {
            name: Column(directory, database.get_column_family(family_name(name)))
            for name in store_names(families)
        }

    @property
    def label(self) -> TaskLabel | None:
        """The task that the stores belong to; None: nothing was written yet."""
        content = self._labels.get(TASK)
        return TaskLabel.decode(content) if content else None

    @property
    def stream_time(self) -> int | None:
        """The last written stream time of the task, in milliseconds."""
        return decoded_time(self._labels.get(STREAM_TIME))

    @property
    def names(self) -> list[str]:
        """Names of the stores."""
        return list(self._columns)

    def store(self, name: str) -> Column:
        """Return the entries of a store.

        Raises:
            ConfigurationError: there is no such store.
        """
        if name not in self._columns:
            raise ConfigurationError(
                f"there is no store {name!r} in {self.directory}; there are "
                f"{', '.join(self._columns) or 'none'}"
            )
        return self._columns[name]

    def label_of(self, name: str) -> StoreLabel | None:
        """Return a store's label; None: the store was never written."""
        content = self._labels.get(store_key(name))
        return StoreLabel.decode(content) if content else None

    def stats(self) -> list[StoreStats]:
        """Return the size of each store."""
        return [measure(name, column) for name, column in self._columns.items()]

    def close(self) -> None:
        """Close the files."""
        for column in (self._labels, *self._columns.values()):
            column.release()
        self._database = None


@contextmanager
def read_only(directory: Path) -> Generator[ReadOnlyStores]:
    """Open the stores in a directory for reading, even if a worker has them open.

    Args:
        directory: of one task and slot, from `places.list_stores`.

    Raises:
        ConfigurationError: there are no stores in it.
        StateDamaged: its files cannot be read.
        RunError: the files change too fast.
    """
    if not directory.is_dir() or not has_database(directory):
        raise ConfigurationError(f"there are no stores in {directory}; name a task's directory")
    with tempfile.TemporaryDirectory(prefix="eosframework-") as own:
        task = _open(directory, own)
        try:
            yield task
        finally:
            task.close()


def _open(directory: Path, own: str) -> ReadOnlyStores:
    """Open the stores; try again if their files changed at the same time.

    Each change is in the manifest first. If one was made while the stores were opened, RocksDB may
    have read some stores from files and others from a write-ahead log that ends earlier, as was
    observed.
    """
    give_up = time.monotonic() + OPEN_SECONDS
    failed_undisturbed = 0
    while True:
        before = manifest.sizes(directory)
        try:
            task = _open_once(directory, own)
        except Exception as error:
            is_undisturbed = manifest.sizes(directory) == before
            failed_undisturbed = failed_undisturbed + 1 if is_undisturbed else 0
            if failed_undisturbed >= FAILURES or time.monotonic() > give_up:
                raise read_error(directory, error) from error
        else:
            if manifest.sizes(directory) == before:
                return task
            task.close()
            if time.monotonic() > give_up:
                raise RunError(
                    f"the stores in {directory} change too fast to be read while their worker "
                    f"runs; try again, or ask the worker itself"
                )
        time.sleep(PAUSE_SECONDS)


def _open_once(directory: Path, own: str) -> ReadOnlyStores:
    setup = SharedMemory(CACHE_BYTES).setup()
    # Keep all files open: a file that the worker deletes stays readable.
    setup.labels.set_max_open_files(-1)
    # Without the update, keys in files are not counted.
    setup.labels.set_skip_stats_update_on_db_open(False)
    families = Rdict.list_cf(str(directory))
    # A secondary instance treats a deleted file as one that is not written yet.
    access = AccessType.read_only(error_if_log_file_exist=False)
    setup.labels.set_db_log_dir(own)
    database = Rdict(str(directory), setup.labels, setup.families(families), access)
    return ReadOnlyStores(directory, database, families)
