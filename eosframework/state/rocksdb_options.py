"""Options of RocksDB, and the memory that all databases of a process share.

The numbers come from benchmarks/stores.py; docs/adr/0009 lists the alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    WriteBufferManager,
)

LABELS = "default"
"""The column family of the labels; every RocksDB database has one of this name."""

CACHE_SHARE = 2 / 3
"""Share of the memory for the cache. The allocator wastes up to half as much again, most of it in
compactions: with ten million keys, a cache of 248 MB made the process grow by 370 MB."""

BUFFERS_SHARE = 0.5
"""Share of the cache for memtables; the rest contains blocks that were read."""

PRESSURE = 0.7
"""Share of the memtables' memory at which the largest one is flushed."""

BUFFER_BYTES = 16 * 2**20
"""Largest memtable of a store. Twice as much slowed bulk writes down by a third, and a start after
a crash reads it again from the write-ahead log."""

BUFFERS_PER_STORE = 4
"""Memtables of a store: the active one, and those that are being flushed."""

BUFFER_PIECE_BYTES = 128 * 2**10
"""Size in which a memtable allocates memory: a worker may have hundreds of almost empty stores."""

BUFFER_FILTER_SHARE = 0.01
"""Share of a memtable for a filter of its keys. Reads of keys that are only in files take a third
less time, reads of absent keys a fifth less."""

LABELS_BUFFER_BYTES = 2 * 2**20

FILES_KEPT_OPEN = 256

BLOCK_BYTES = 4 * 2**10

FILTER_BITS_PER_KEY = 10

FILTER_PIECE_BYTES = 32 * 2**10
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
        cache_bytes = int(size_bytes * CACHE_SHARE)
        self._buffers_bytes = int(cache_bytes * BUFFERS_SHARE)
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
        limit = self._buffers_bytes * PRESSURE
        if self.buffers.get_usage() <= limit:
            return
        sizes = [(database.buffered_bytes(), database) for database in databases]
        # The rest is being flushed already.
        if sizes and sum(size for size, _ in sizes) > limit / 2:
            max(sizes, key=lambda each: each[0])[1].start_flush()

    def _store_options(self) -> Options:
        options = self._any_options()
        options.set_write_buffer_size(min(BUFFER_BYTES, self._buffers_bytes // 8))
        options.set_max_write_buffer_number(BUFFERS_PER_STORE)
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(BUFFER_FILTER_SHARE)
        return options

    def _labels_options(self) -> Options:
        options = self._any_options()
        options.set_write_buffer_size(LABELS_BUFFER_BYTES)
        return options

    def _any_options(self) -> Options:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        _set_durability(options)
        _set_housekeeping(options)
        options.set_write_buffer_manager(self.buffers)
        options.set_arena_block_size(BUFFER_PIECE_BYTES)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_block_based_table_factory(self._tables())
        return options

    def _tables(self) -> BlockBasedOptions:
        tables = BlockBasedOptions()
        tables.set_block_cache(self.cache)
        tables.set_block_size(BLOCK_BYTES)
        tables.set_bloom_filter(FILTER_BITS_PER_KEY, False)
        # Otherwise indexes and filters use memory outside of the cache that grows with the stores.
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        tables.set_index_type(BlockBasedIndexType.two_level_index_search())
        tables.set_partition_filters(True)
        tables.set_metadata_block_size(FILTER_PIECE_BYTES)
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
    options.set_max_open_files(FILES_KEPT_OPEN)
    options.set_skip_stats_update_on_db_open(True)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(2**20)
    options.set_max_manifest_file_size(16 * 2**20)
    options.set_manifest_preallocation_size(64 * 2**10)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
