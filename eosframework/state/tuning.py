"""How RocksDB is set up, and the memory that all databases of a process share.

The numbers come from benchmarks/state.py; docs/adr/0010 says what else was tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    WriteBufferManager,
)

BUFFERS_SHARE = 0.5
"""Of the memory, for what is not in files yet; the rest holds what was read."""

PRESSURE = 0.7
"""Share of the buffers from which on the largest one goes to a file."""

LARGEST_BUFFER_BYTES = 32 * 2**20
"""More of it delays the start after a crash: it is read from the write-ahead log again."""

BUFFERS_PER_STORE = 3

FILES_KEPT_OPEN = 256

BLOCK_BYTES = 4 * 2**10

FILTER_BITS_PER_KEY = 10


class Buffering(Protocol):
    """A database whose writes are not all in files yet."""

    def buffered_bytes(self) -> int:
        """Return how much of it takes new writes."""
        ...

    def start_flush(self) -> None:
        """Begin to write it to files."""
        ...


class SharedMemory:
    """What all databases of a process keep in memory together.

    Args:
        size_bytes: for blocks that were read, for indexes and filters, and for what was written
            and is not in files yet.
    """

    def __init__(self, size_bytes: int) -> None:
        self._buffers_bytes = int(size_bytes * BUFFERS_SHARE)
        self.cache = Cache(size_bytes)
        self.buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            self._buffers_bytes, False, self.cache
        )

    def options(self) -> Options:
        """Return how a database, and each store in it, is set up."""
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        _set_durability(options)
        self._set_buffers(options)
        _set_housekeeping(options)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_block_based_table_factory(self._tables())
        return options

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

    def _set_buffers(self, options: Options) -> None:
        options.set_write_buffer_manager(self.buffers)
        options.set_write_buffer_size(min(LARGEST_BUFFER_BYTES, self._buffers_bytes // 4))
        options.set_max_write_buffer_number(BUFFERS_PER_STORE)

    def _tables(self) -> BlockBasedOptions:
        tables = BlockBasedOptions()
        tables.set_block_cache(self.cache)
        tables.set_block_size(BLOCK_BYTES)
        tables.set_bloom_filter(FILTER_BITS_PER_KEY, False)
        # Else indexes and filters take memory beside the cache, the more the larger the stores.
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
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
