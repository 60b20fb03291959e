"""Reading a store: one column family of a RocksDB database.

RocksDB's errors are classified by their texts: rocksdict raises each as an Exception.

Options of RocksDB, and the memory that all databases of a process share.
The numbers come from benchmarks/stores.py; docs/adr/0009 lists the alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBufferManager,
)

from eosframework.errors import RunError, StateDamaged, StateUnwritable

_MISSING = "No such file or directory"

_REFUSED = ("IO error", "os error")
"""Texts in errors of the operating system, as opposed to damage that RocksDB found."""

_LONGEST_REASON = 300


def is_damage(error: Exception) -> bool:
    """Return whether files are missing or damaged, rather than refused by the system."""
    text = str(error)
    refused = any(sign in text for sign in _REFUSED) and _MISSING not in text
    return type(error) is Exception and not refused


def read_error(directory: Path, error: Exception) -> RunError:
    """Return the error for a failed read."""
    _require_rocksdb(error)
    return StateDamaged(
        f"the stores in {directory} cannot be read: {reason_of(error)}. Remove that directory and "
        f"start again: they are rebuilt from their changelogs"
    )


def write_error(directory: Path, error: Exception) -> RunError:
    """Return the error for a failed write."""
    _require_rocksdb(error)
    if is_damage(error):
        return read_error(directory, error)
    return StateUnwritable(
        f"the stores in {directory} cannot be written: {reason_of(error)}. Free disk space, fix "
        f"the cause, or set state.directory to another local disk; then start again"
    )


def reason_of(error: Exception) -> str:
    """Return RocksDB's message in one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _require_rocksdb(error: Exception) -> None:
    if type(error) is not Exception:
        raise error


LABELS = "default"
"""The column family of the labels; every RocksDB database has one of this name."""

_CACHE_SHARE = 2 / 3
"""Share of the memory for the cache. The allocator wastes up to half as much again, most of it in
compactions: with ten million keys, a cache of 248 MB made the process grow by 370 MB."""

_BUFFERS_SHARE = 0.5
"""Share of the cache for memtables; the rest contains blocks that were read."""

_PRESSURE = 0.7
"""Share of the memtables' memory at which the largest one is flushed."""

_BUFFER_BYTES = 16 * 2**20
"""Largest memtable of a store. Twice as much slowed bulk writes down by a third, and a start after
a crash reads it again from the write-ahead log."""

_BUFFERS_PER_STORE = 4
"""Memtables of a store: the active one, and those that are being flushed."""

_BUFFER_PIECE_BYTES = 128 * 2**10
"""Size in which a memtable allocates memory: a worker may have hundreds of almost empty stores."""

_BUFFER_FILTER_SHARE = 0.01
"""Share of a memtable for a filter of its keys. Reads of keys that are only in files take a third
less time, reads of absent keys a fifth less."""

_LABELS_BUFFER_BYTES = 2 * 2**20

_FILES_KEPT_OPEN = 256

_BLOCK_BYTES = 4 * 2**10

_FILTER_BITS_PER_KEY = 10

_FILTER_PIECE_BYTES = 32 * 2**10
"""Size of a partition of filters and indexes. An unpartitioned filter of a file has megabytes, more
than one shard of the cache: from six million keys on, every read of an absent key read the whole
filter again. Partitions of 4 KiB make such a read 0.9 µs slower."""


class Memtables(Protocol):
    """A database with memtables."""

    def buffered_bytes(self) -> int:
        """Return the size of all active memtables."""
        ...

    def start_flush(self) -> None:
        """Start to flush the memtables."""
        ...


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """Options of one database: of its labels, also used for the database, and of its stores."""

    labels: Options
    store: Options

    def families(self, names: Iterable[str]) -> dict[str, Options]:
        """Return the options of each of these column families."""
        return {name: self.labels if name == LABELS else self.store for name in names}


class SharedMemory:
    """The memory that all databases of a process share.

    Args:
        size_bytes: for blocks, indexes, filters and memtables.
    """

    def __init__(self, size_bytes: int) -> None:
        cache_bytes = int(size_bytes * _CACHE_SHARE)
        self._buffers_bytes = int(cache_bytes * _BUFFERS_SHARE)
        self.cache = Cache(cache_bytes)
        self.buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            self._buffers_bytes, False, self.cache
        )

    def setup(self) -> DatabaseOptions:
        """Return the options of a database."""
        return DatabaseOptions(self._labels_options(), self._store_options())

    def flush_largest(self, databases: Iterable[Memtables]) -> None:
        """Flush the database with the largest memtables if their total is too large.

        RocksDB by itself would flush the database that is being written, even an almost empty one.
        """
        limit = self._buffers_bytes * _PRESSURE
        if self.buffers.get_usage() <= limit:
            return
        sizes = [(database.buffered_bytes(), database) for database in databases]
        # The rest is being flushed already.
        if sizes and sum(size for size, _ in sizes) > limit / 2:
            max(sizes, key=lambda each: each[0])[1].start_flush()

    def _store_options(self) -> Options:
        options = self._any_options()
        options.set_write_buffer_size(min(_BUFFER_BYTES, self._buffers_bytes // 8))
        options.set_max_write_buffer_number(_BUFFERS_PER_STORE)
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(_BUFFER_FILTER_SHARE)
        return options

    def _labels_options(self) -> Options:
        options = self._any_options()
        options.set_write_buffer_size(_LABELS_BUFFER_BYTES)
        return options

    def _any_options(self) -> Options:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        _set_durability(options)
        _set_housekeeping(options)
        options.set_write_buffer_manager(self.buffers)
        options.set_arena_block_size(_BUFFER_PIECE_BYTES)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_block_based_table_factory(self._tables())
        return options

    def _tables(self) -> BlockBasedOptions:
        tables = BlockBasedOptions()
        tables.set_block_cache(self.cache)
        tables.set_block_size(_BLOCK_BYTES)
        tables.set_bloom_filter(_FILTER_BITS_PER_KEY, False)
        # Otherwise indexes and filters use memory outside of the cache that grows with the stores.
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        tables.set_index_type(BlockBasedIndexType.two_level_index_search())
        tables.set_partition_filters(True)
        tables.set_metadata_block_size(_FILTER_PIECE_BYTES)
        tables.set_pin_top_level_index_and_filter(True)
        return tables


def _set_durability(options: Options) -> None:
    """Set up writes that survive the process but do not wait for the disk.

    The write-ahead log is replayed up to its first incomplete record. All stores are flushed
    atomically, so none is ahead of another even if the log is lost.
    """
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_atomic_flush(True)
    options.set_paranoid_checks(True)


def _set_housekeeping(options: Options) -> None:
    options.set_max_background_jobs(2)
    options.set_max_open_files(_FILES_KEPT_OPEN)
    options.set_skip_stats_update_on_db_open(True)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(2**20)
    options.set_max_manifest_file_size(16 * 2**20)
    options.set_manifest_preallocation_size(64 * 2**10)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)


_FIRST_CHUNK = 16
_LARGEST_CHUNK = 512


class Column:
    """The entries of one store.

    Args:
        directory: of the database.
        family: the store's column family.
    """

    def __init__(self, directory: Path, family: Rdict) -> None:
        self._directory = directory
        self._cursors: WeakSet[_Cursor] = WeakSet()
        self._family: Rdict | None = family
        self._get: Any = family.get

    def get(self, key: bytes) -> bytes | None:
        """Return the entry of a key.

        Raises:
            StateDamaged: the files cannot be read.
        """
        try:
            return self._get(key)
        except Exception as error:
            raise read_error(self._directory, error) from error

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with `first <= key < last` of a snapshot taken now, in byte order.

        Raises:
            StateDamaged: the files cannot be read.
        """
        cursor = _Cursor(self._directory, self._open(), first, last, reverse=reverse)
        self._cursors.add(cursor)
        return cursor.entries()

    def number(self, name: str) -> int:
        """Return an integer property of the column family; `name` is without `rocksdb.`."""
        return self._open().property_int_value(f"rocksdb.{name}") or 0

    def start_flush(self) -> None:
        """Start to flush the memtable to a file."""
        self._open().flush(wait=False)

    def replace(self, family: Rdict) -> None:
        """Use another column family from now on; open scans are not affected."""
        self._family, self._get = family, family.get

    def release(self) -> None:
        """Drop all references to the database, which stays open while there are any."""
        self._family, self._get = None, _closed
        for cursor in list(self._cursors):
            cursor.release()

    def _open(self) -> Rdict:
        return _closed() if self._family is None else self._family


class _Cursor:
    """A scan over a snapshot of the store.

    Entries are fetched in chunks. The four calls per entry are cheaper outside of a generator's
    frame, and entries that wait to be yielded do not keep the database open.
    """

    def __init__(
        self, directory: Path, family: Rdict, first: bytes, last: bytes | None, *, reverse: bool
    ) -> None:
        self._directory = directory
        self._reverse = reverse
        # rocksdict's setter of the lower bound sets the upper bound.
        self._first = first
        # Keep a reference: RocksDB holds a pointer to this object's bytes.
        self._last = last
        self._iterator: RdictIter | None = family.iter(_bounded(last))
        if reverse:
            self._iterator.seek_to_last()
        else:
            self._iterator.seek(first)

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the remaining entries; raise if the iterator stopped because of an error."""
        size = _FIRST_CHUNK
        while chunk := self._chunk(size):
            yield from chunk
            size = min(2 * size, _LARGEST_CHUNK)

    def release(self) -> None:
        """End the scan; later reads raise."""
        self._iterator = None

    def _chunk(self, size: int) -> list[tuple[bytes, bytes]]:
        iterator = _closed() if self._iterator is None else self._iterator
        key, value, valid = iterator.key, iterator.value, iterator.valid
        step = iterator.prev if self._reverse else iterator.next
        chunk: list[tuple[bytes, bytes]] = []
        while len(chunk) < size and valid():
            if (found := key()) < self._first:
                break
            chunk.append((found, value()))
            step()
        if not valid():
            self._require_end(iterator)
        return chunk

    def _require_end(self, iterator: RdictIter) -> None:
        """Raise if the iterator stopped because of an error, which only its status shows."""
        try:
            iterator.status()
        except Exception as error:
            raise read_error(self._directory, error) from error


def _bounded(last: bytes | None) -> ReadOptions | None:
    if last is None:
        return None
    options = ReadOptions()
    options.set_iterate_upper_bound(last)
    return options


def _closed(*_: object) -> Any:
    raise RuntimeError("the stores of this task are closed; open them again")
