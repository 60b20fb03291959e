"""Entries of a versioned table: an index for each row, and chunks of its versions.

    b"k" + key                  the last version older than the history, and the starts of the
    chunks
                                of later versions
    b"c" + start (8) + key      the versions from this time to the start of the next chunk

A decoded entry is cached for as long as the store returns the identical bytes object: after a
record fails, the previous bytes are back, and the entry is decoded again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TypeVar

from eosframework.operators.entries import Timed, packed, packed_all, unpacked
from eosframework.operators.store_transaction import RECENT_BYTES, RECENT_ENTRIES, StoreTransaction

T = TypeVar("T")

_TIME = struct.Struct(">Q")
_COUNT = struct.Struct(">I")
_INDEX, _CHUNK = b"k", b"c"

Index = tuple[Timed | None, Sequence[int]]
"""The last version older than the history, if any, and the starts of the chunks."""

_EMPTY: Index = (None, ())


class _Known(dict[bytes, tuple[bytes, T]]):
    """A cache of decoded entries, each with the bytes that it was decoded from."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def remember(self, key: bytes, data: bytes, read: T) -> tuple[bytes, T]:
        """Cache a decoded entry, and return it with its bytes; a full cache is cleared first."""
        if len(self) >= RECENT_ENTRIES or self._bytes > RECENT_BYTES:
            self.clear()
            self._bytes = 0
        former = self.get(key)
        self._bytes += len(data) - (len(former[0]) if former else 0)
        self[key] = known = data, read
        return known


class Chunks:
    """Reads and writes indexes and chunks; callers must not change the returned values.

    Args:
        store: the transaction of the store, with values of bytes.
    """

    def __init__(self, store: StoreTransaction) -> None:
        self.form = store.form
        self._store = store
        self._indexes = _Known[Index]()
        self._chunks = _Known[list[Timed]]()

    def index(self, key: bytes) -> Index:
        """Return the index of a row; empty if the row has none."""
        entry = self._store.get(_INDEX + key)
        if entry is None:
            return _EMPTY
        data: bytes = entry[0]
        known = self._indexes.get(key)
        if known is not None and known[0] is data:
            return known[1]
        try:
            (count,) = _COUNT.unpack_from(data)
            starts = struct.unpack_from(f">{count}Q", data, _COUNT.size)
            index = next(unpacked(data[_COUNT.size + 8 * count :]), None), starts
        except (struct.error, MemoryError) as error:  # MemoryError: of a count of billions.
            raise self.form.held.damaged(data, error) from error
        self._indexes.remember(key, data, index)
        return index

    def write_index(self, key: bytes, base: Timed | None, starts: Sequence[int]) -> None:
        """Write the index of a row; an empty one is removed."""
        if not starts and (base is None or base[1] is None):
            self._store.delete(_INDEX + key)
            return
        data = struct.pack(f">I{len(starts)}Q", len(starts), *starts)
        if base is not None:
            data += packed(*base)
        self._store.put(_INDEX + key, (data, starts[-1] if starts else 0))

    def versions(self, start: int, key: bytes) -> Sequence[Timed]:
        """Return the versions of a chunk, earliest first."""
        return self._read(start, key)[1]

    def size(self, start: int, key: bytes) -> int:
        """Return the bytes of a chunk."""
        return len(self._read(start, key)[0])

    def append(self, start: int, key: bytes, version: Timed) -> None:
        """Append a version to a chunk."""
        data, versions = self._read(start, key)
        data += packed(*version)
        versions.append(version)
        self._put(start, key, data, versions)

    def write(self, start: int, key: bytes, versions: Sequence[Timed]) -> int:
        """Write a chunk, and return its length in bytes."""
        data = packed_all(versions)
        self._put(start, key, data, [*versions])
        return len(data)

    def remove(self, start: int, key: bytes) -> None:
        """Remove a chunk."""
        self._store.delete(_name(start, key))

    def before(self, time: int, first: tuple[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield start and key of the chunks that begin before a time, from `first` on."""
        for name, _ in self._store.scan(_name(*first), _name(time, b"")):
            yield self._store.form.time_in(_TIME, name, 1), name[1 + _TIME.size :]

    def _read(self, start: int, key: bytes) -> tuple[bytes, list[Timed]]:
        name = _name(start, key)
        entry = self._store.get(name)
        if entry is None:
            error = KeyError(f"the index of a row names a chunk at {start} that does not exist")
            raise self.form.held.damaged(_INDEX + key, error)
        known = self._chunks.get(name)
        if known is not None and known[0] is entry[0]:
            return known
        versions = self.form.timed(entry[0])
        if not versions:
            raise self.form.held.damaged(name, ValueError("a chunk without versions"))
        return self._chunks.remember(name, entry[0], versions)

    def _put(self, start: int, key: bytes, data: bytes, versions: list[Timed]) -> None:
        name = _name(start, key)
        self._store.put(name, (data, start))
        self._chunks.remember(name, data, versions)


def _name(start: int, key: bytes) -> bytes:
    return _CHUNK + _TIME.pack(start) + key
