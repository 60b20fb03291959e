"""Reading a store: one column family of a RocksDB database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

from rocksdict import Rdict, RdictIter, ReadOptions

from eosframework.state import rocksdb_errors

FIRST_CHUNK = 16
LARGEST_CHUNK = 512


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
            raise rocksdb_errors.reading(self._directory, error) from error

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
        size = FIRST_CHUNK
        while chunk := self._chunk(size):
            yield from chunk
            size = min(2 * size, LARGEST_CHUNK)

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
            raise rocksdb_errors.reading(self._directory, error) from error


def _bounded(last: bytes | None) -> ReadOptions | None:
    if last is None:
        return None
    options = ReadOptions()
    options.set_iterate_upper_bound(last)
    return options


def _closed(*_: object) -> Any:
    raise RuntimeError("the stores of this task are closed; open them again")
