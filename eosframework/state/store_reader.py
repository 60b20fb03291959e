"""Reading a task's stores beside the worker that holds them, or after it.

RocksDB opens them read-only: it takes no lock and changes nothing of the data.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rocksdict import AccessType, Rdict

from eosframework.errors import ConfigurationError, RunError
from eosframework.processing.stores.state_ports import StoreStats
from eosframework.state import manifest
from eosframework.state import rocksdb_errors as trouble
from eosframework.state.column import Column
from eosframework.state.database import family_name, measure, store_names
from eosframework.state.labels import (
    STREAM_TIME,
    TASK,
    StoreLabel,
    TaskLabel,
    decoded_time,
    store_key,
)
from eosframework.state.places import has_data
from eosframework.state.tuning import LABELS, SharedMemory

CACHE_BYTES = 32 * 2**20

OPEN_SECONDS = 30.0
"""How long opening is tried while the worker changes its files."""

FAILURES = 3
"""So many in a row while it changed none mean that they are damaged."""

PAUSE_SECONDS = 0.02


class StoredTask:
    """What a task's stores held when they were opened.

    Args:
        directory: of the stores.
        database: opened read-only with all column families.
        families: their names.
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
        """Whose stores these are; None: they were not begun yet."""
        content = self._labels.get(TASK)
        return TaskLabel.decode(content) if content else None

    @property
    def stream_time(self) -> int | None:
        """The task's stream time at the last write that told it, in milliseconds."""
        return decoded_time(self._labels.get(STREAM_TIME))

    @property
    def names(self) -> list[str]:
        """The stores that there are."""
        return list(self._columns)

    def store(self, name: str) -> Column:
        """Return what one of them holds.

        Raises:
            ConfigurationError: there is no such store.
        """
        if name not in self._columns:
            raise ConfigurationError(
                f"there is no store {name!r} in {self.directory}; there are "
                f"{', '.join(self._columns) or 'none'}"
            )
        return self._columns[name]

    def made_for(self, name: str) -> StoreLabel | None:
        """Return what a store was made for and how far it is; None: it was never written."""
        content = self._labels.get(store_key(name))
        return StoreLabel.decode(content) if content else None

    def stats(self) -> list[StoreStats]:
        """Return how large each store is."""
        return [measure(name, column) for name, column in self._columns.items()]

    def close(self) -> None:
        """Let the files go."""
        for column in (self._labels, *self._columns.values()):
            column.release()
        self._database = None


@contextmanager
def read_only(directory: Path) -> Generator[StoredTask]:
    """Open the stores in a directory for reading, whoever holds them.

    Args:
        directory: of one task and slot, as `places.found` tells.

    Raises:
        ConfigurationError: there are no stores in it.
        StateDamaged: its files cannot be read.
        RunError: they change too fast.
    """
    if not directory.is_dir() or not has_data(directory):
        raise ConfigurationError(f"there are no stores in {directory}; name a task's directory")
    with tempfile.TemporaryDirectory(prefix="eosframework-") as own:
        task = _open(directory, own)
        try:
            yield task
        finally:
            task.close()


def _open(directory: Path, own: str) -> StoredTask:
    """Open the stores at a moment when none of their files comes or goes.

    Each change is in the manifest first. Where one came meanwhile, RocksDB may have read some
    stores from files and others from a log of writes that ends earlier (seen).
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
                raise trouble.reading(directory, error) from error
        else:
            if manifest.sizes(directory) == before:
                return task
            task.close()
            if time.monotonic() > give_up:
                raise RunError(
                    f"the stores in {directory} are written too fast to be read beside their "
                    f"worker; try again, or ask the worker itself"
                )
        time.sleep(PAUSE_SECONDS)


def _open_once(directory: Path, own: str) -> StoredTask:
    setup = SharedMemory(CACHE_BYTES).setup()
    # A file that the worker deletes stays readable while it is open.
    setup.labels.set_max_open_files(-1)
    # Else the keys in files are not counted.
    setup.labels.set_skip_stats_update_on_db_open(False)
    families = Rdict.list_cf(str(directory))
    # A secondary instance would take a file that is gone for one that is still to come.
    access = AccessType.read_only(error_if_log_file_exist=False)
    setup.labels.set_db_log_dir(own)
    database = Rdict(str(directory), setup.labels, setup.families(families), access)
    return StoredTask(directory, database, families)
