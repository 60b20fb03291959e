"""How RocksDB is set up, and the memory that all databases of a process share.

The numbers come from benchmarks/stores.py; docs/adr/0009 says what else was tried.
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
"""The column family of the labels: each database has one of this name."""

CACHE_SHARE = 2 / 3
"""Of the memory; the allocator wastes up to half as much again, most of it where files are merged
(seen with ten million keys: 248 MB in the cache made the process grow by 370 MB)."""

BUFFERS_SHARE = 0.5
"""Of the cache, for what is not in files yet; the rest holds what was read."""

PRESSURE = 0.7
"""Share of the buffers from which on the largest one goes to a file."""

BUFFER_BYTES = 16 * 2**20
"""Of one store, at most. Twice as much slowed bulk writes down by a third, and a start after a
crash reads it again from the log of writes."""

BUFFERS_PER_STORE = 4
"""The one that takes new writes, and those on their way to a file."""

BUFFER_PIECE_BYTES = 128 * 2**10
"""In such pieces it grows: a worker may have hundreds of stores that hold next to nothing."""

BUFFER_FILTER_SHARE = 0.01
"""Of a buffer, for a filter of its keys: a read of what is only in files takes a third less, one of
what is nowhere a fifth."""

LABELS_BUFFER_BYTES = 2 * 2**20

FILES_KEPT_OPEN = 256

BLOCK_BYTES = 4 * 2**10

FILTER_BITS_PER_KEY = 10

FILTER_PIECE_BYTES = 32 * 2**10
"""Filters and indexes are read in such pieces. In one piece a file's filter takes megabytes: more
than one of the parts of the cache holds, so that from six million keys on every read of an absent
key read the whole of it again. Pieces of 4 KiB cost such a read 0.9 µs more."""


class Buffering(Protocol):
    """A database whose writes are not all in files yet."""

    def buffered_bytes(self) -> int:
        """Return how much of it takes new writes."""
        ...

    def start_flush(self) -> None:
        """Begin to write it to files."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """How one database is set up: its labels, for the database as well, and each of its stores."""

    labels: Options
    store: Options

    def families(self, names: Iterable[str]) -> dict[str, Options]:
        """Return how each of these column families is set up."""
        return {name: self.labels if name == LABELS else self.store for name in names}


class SharedMemory:
    """What all databases of a process keep in memory together.

    Args:
        size_bytes: for blocks that were read, for indexes and filters, and for what was written
            and is not in files yet.
    """

    def __init__(self, size_bytes: int) -> None:
        cache_bytes = int(size_bytes * CACHE_SHARE)
        self._buffers_bytes = int(cache_bytes * BUFFERS_SHARE)
        self.cache = Cache(cache_bytes)
        self.buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            self._buffers_bytes, False, self.cache
        )

    def setup(self) -> Setup:
        """Return how a database is set up."""
        return Setup(self._labels_options(), self._store_options())

    def make_room(self, databases: Iterable[Buffering]) -> None:
        """Write the largest buffer to a file if all of them together become too large.

        RocksDB would do so with the database that is being written, however little it has.
        """
        limit = self._buffers_bytes * PRESSURE
        if self.buffers.get_usage() <= limit:
            return
        sizes = [(database.buffered_bytes(), database) for database in databases]
        # The rest is on its way to a file already.
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
        # Else indexes and filters take memory beside the cache, the more the larger the stores.
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        tables.set_index_type(BlockBasedIndexType.two_level_index_search())
        tables.set_partition_filters(True)
        tables.set_metadata_block_size(FILTER_PIECE_BYTES)
        tables.set_pin_top_level_index_and_filter(True)
        return tables


def _set_durability(options: Options) -> None:
    """Every write is in the system's hands before it returns; none waits for the disk.

    The log of writes is replayed up to where it is whole. All stores go to files together, so that
    none is ahead of another, even where the log is gone.
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
