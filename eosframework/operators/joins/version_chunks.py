"""Entries of a table with its past: an index for each row, and chunks of its versions.

    b"k" + key                  the last version that is older than the history, and where the
                                chunks of later versions begin
    b"c" + start (8) + key      the versions from this time to where the next chunk begins

What was read of an entry is remembered for as long as the session gives the very same bytes: a
record that fails puts the former ones back, and then they are read again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TypeVar

from eosframework.operators.store_transaction import RECENT_BYTES, RECENT_ENTRIES, StoreSession
from eosframework.operators.timed_values import Timed, packed, packed_all, unpacked

T = TypeVar("T")

_TIME = struct.Struct(">Q")
_COUNT = struct.Struct(">I")
_INDEX, _CHUNK = b"k", b"c"

Index = tuple[Timed | None, Sequence[int]]
"""The version that is older than the history, if there is one, and where the chunks begin."""

_EMPTY: Index = (None, ())


class _Known(dict[bytes, tuple[bytes, T]]):
    """What was read of entries, each with the bytes that it was read of."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def remember(self, key: bytes, data: bytes, read: T) -> tuple[bytes, T]:
        """Remember what was read of an entry, and return both; forget others if they are many."""
        if len(self) >= RECENT_ENTRIES or self._bytes > RECENT_BYTES:
            self.clear()
            self._bytes = 0
        former = self.get(key)
        self._bytes += len(data) - (len(former[0]) if former else 0)
        self[key] = known = data, read
        return known


class Chunks:
    """Reads and writes them; what it returns must not be changed.

    Args:
        session: of the store, with bytes as values.
    """

    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._indexes = _Known[Index]()
        self._chunks = _Known[list[Timed]]()

    def index(self, key: bytes) -> Index:
        """Return the index of a row; an empty one where there is none."""
        entry = self._session.get(_INDEX + key)
        if entry is None:
            return _EMPTY
        data: bytes = entry[0]
        known = self._indexes.get(key)
        if known is not None and known[0] is data:
            return known[1]
        (count,) = _COUNT.unpack_from(data)
        starts = struct.unpack_from(f">{count}Q", data, _COUNT.size)
        index = next(unpacked(data[_COUNT.size + 8 * count :]), None), starts
        self._indexes.remember(key, data, index)
        return index

    def write_index(self, key: bytes, base: Timed | None, starts: Sequence[int]) -> None:
        """Write the index of a row; one that says nothing is removed."""
        if not starts and (base is None or base[1] is None):
            self._session.delete(_INDEX + key)
            return
        data = struct.pack(f">I{len(starts)}Q", len(starts), *starts)
        if base is not None:
            data += packed(*base)
        self._session.put(_INDEX + key, (data, starts[-1] if starts else 0))

    def versions(self, start: int, key: bytes) -> Sequence[Timed]:
        """Return the versions of a chunk, the earliest first."""
        return self._read(start, key)[1]

    def size(self, start: int, key: bytes) -> int:
        """Return how many bytes a chunk has."""
        return len(self._read(start, key)[0])

    def append(self, start: int, key: bytes, version: Timed) -> None:
        """Add a version at the end of a chunk."""
        data, versions = self._read(start, key)
        data += packed(*version)
        versions.append(version)
        self._put(start, key, data, versions)

    def write(self, start: int, key: bytes, versions: Sequence[Timed]) -> int:
        """Write a chunk, and return how many bytes it has."""
        data = packed_all(versions)
        self._put(start, key, data, [*versions])
        return len(data)

    def remove(self, start: int, key: bytes) -> None:
        """Remove a chunk."""
        self._session.delete(_name(start, key))

    def before(self, time: int) -> Iterator[tuple[int, bytes]]:
        """Yield start and key of the chunks that begin before a time."""
        for name in [name for name, _ in self._session.scan(_CHUNK, _name(time, b""))]:
            yield _TIME.unpack_from(name, 1)[0], name[1 + _TIME.size :]

    def _read(self, start: int, key: bytes) -> tuple[bytes, list[Timed]]:
        name = _name(start, key)
        entry = self._session.get(name)
        assert entry is not None, "the index names chunks that exist"
        known = self._chunks.get(name)
        if known is not None and known[0] is entry[0]:
            return known
        return self._chunks.remember(name, entry[0], [*unpacked(entry[0])])

    def _put(self, start: int, key: bytes, data: bytes, versions: list[Timed]) -> None:
        name = _name(start, key)
        self._session.put(name, (data, start))
        self._chunks.remember(name, data, versions)


def _name(start: int, key: bytes) -> bytes:
    return _CHUNK + _TIME.pack(start) + key
