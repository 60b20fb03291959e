"""Rows of a versioned table: the row that was current at a given time (as KIP-889).

A lookup takes two point reads, however many versions exist; a change rewrites
one chunk. Versions older than the history are removed chunk by chunk, oldest first. The last one
before it is kept for as long as it is the current one; a deletion is kept for one more history, so
that an older row that comes later is not taken for the current one.

Entries of a versioned table: an index for each row, and chunks of its versions.

    b"k" + key                  the last version older than the history, and the starts of the
    chunks
                                of later versions
    b"c" + start (8) + key      the versions from this time to the start of the next chunk

A decoded entry is cached for as long as the store returns the identical bytes object: after a
record fails, the previous bytes are back, and the entry is decoded again.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from eosframework.engine.operators.entries import Entry, Timed, packed, packed_all, unpacked
from eosframework.engine.operators.store_transaction import (
    RECENT_BYTES,
    RECENT_ENTRIES,
    StoreTransaction,
)
from eosframework.engine.operators.windows import Alarm, TimedState
from eosframework.errors import raised_by_functions
from eosframework.serialization.serdes import Serde

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


CHUNKS = 16
"""The approximate number of chunks into which the history of a row is divided."""

CHUNK_BYTES = 16_384
"""A longer chunk takes no version at its end, and a chunk of twice the length is split: an entry
is written as one message, and brokers limit the size of messages."""


_FIRST = 0, b""
"""Start and key of the first chunk."""


class VersionedRows(TimedState):
    """The versions of each row.

    Args:
        chunks: the chunks of the store.
        rows: serde of the rows.
        history_ms: the time for which past versions are kept.
        alarm: set to the time at which versions can be removed.
    """

    def __init__(self, chunks: Chunks, rows: Serde, history_ms: int, alarm: Alarm) -> None:
        super().__init__(alarm)
        self._chunks = chunks
        self._encode: Callable[[Any], bytes] | None = rows.encode
        self._decode: Callable[[bytes], Any] | None = rows.decode
        self._history_ms = history_ms
        self._chunk_ms = max(1, history_ms // CHUNKS)
        self._due = 0
        self._next = _FIRST
        """The chunk at which the removal continues."""

    def change(self, key: bytes, value: Any, timestamp: int, stream_time: int) -> tuple[bool, Any]:
        """Add a version of a row; see `table_joins.Change`.

        A version older than the current row is kept for lookups and changes nothing else, as in
        Kafka Streams (KIP-914). Of two versions with the same time the later record wins.
        """
        time = max(timestamp, 0)
        base, starts = self._chunks.index(key)
        oldest = stream_time - self._history_ms
        if time < oldest:
            if self._is_passed(key, base, starts, time, oldest):
                return False, None
            base, starts = self._without_past(key, base, starts, oldest)
        current = self._newest(key, base, starts)
        version = time, self._encoded(value)
        if current is not None and self._goes_behind(key, current, starts, time, oldest):
            self._chunks.append(starts[-1], key, version)
        else:
            self._insert(key, base, [*starts], version, oldest)
        if current is not None and current[0] > time:
            return False, None
        before = None if current is None else self._decoded(current)
        return value is not None or before is not None, before

    def row(self, key: bytes) -> Entry | None:
        """Return the current row with its timestamp."""
        return self._as_entry(self._newest(key, *self._chunks.index(key)))

    def row_at(self, key: bytes, time: int, stream_time: int) -> Entry | None:
        """Return the row that was current at a time; None also where that is no longer known.

        Args:
            key: the encoded key.
            time: in milliseconds.
            stream_time: the stream time of the task. Further back than the history only the row
                that is still current is known, from its own time on.
        """
        base, starts = self._chunks.index(key)
        if time < stream_time - self._history_ms:
            current = self._newest(key, base, starts)
            return self._as_entry(current) if current and current[0] <= time else None
        found = base if base is not None and base[0] <= time else None
        at = bisect_right(starts, time)
        if at > 0:
            versions = self._chunks.versions(starts[at - 1], key)
            found = _later(found, versions[bisect_right(versions, time, key=_time_of) - 1])
        return self._as_entry(found)

    def begin(self) -> None:
        """Schedule one pass through the store, at the next commit."""
        self._due, self._next = 0, _FIRST
        self.alarm.set(0)

    def due(self) -> int:
        """Return the stream time at which removable versions may exist."""
        return self._due

    def closing(self, now: int) -> Generator[None]:
        """Remove the versions that no lookup can find any more."""
        oldest = max(0, now - self._history_ms)
        for start, key in self._chunks.before(max(0, oldest - self._chunk_ms), self._next):
            self._next = start, key
            yield None
            base, starts = self._chunks.index(key)
            last = self._chunks.versions(start, key)[-1]
            is_current = start == starts[-1]
            if last[0] < oldest and not (is_current and self._is_remembered(last, oldest)):
                self._chunks.remove(start, key)
                kept = [each for each in starts if each != start]
                self._chunks.write_index(key, _later(base, last), kept)
        self._due, self._next = now + self._chunk_ms, _FIRST

    def _goes_behind(
        self, key: bytes, current: Timed, starts: Sequence[int], time: int, oldest: int
    ) -> bool:
        """Return whether a version is appended to the last chunk, after all others."""
        return (
            len(starts) > 0
            and current[0] < time < starts[-1] + self._chunk_ms
            and starts[0] >= oldest - self._chunk_ms
            and starts[-1] <= current[0]
            and self._chunks.size(starts[-1], key) <= CHUNK_BYTES
        )

    def _insert(
        self, key: bytes, base: Timed | None, starts: list[int], version: Timed, oldest: int
    ) -> None:
        """Add a version to its chunk; begin a chunk where there is none or it is full."""
        time, before = version[0], (base, [*starts])
        at = bisect_right(starts, time)
        versions = self._chunk_for(key, starts, at, time)
        if not versions:
            starts.insert(at, time)
            at += 1
        place = bisect_right(versions, time, key=_time_of)
        if place > 0 and versions[place - 1][0] == time:
            versions[place - 1] = version
        else:
            versions.insert(place, version)
        self._write(key, starts, at - 1, versions)
        while starts and starts[0] < oldest - self._chunk_ms:
            last = self._chunks.versions(starts[0], key)[-1]
            is_current = len(starts) == 1
            if last[0] >= oldest or (is_current and self._is_remembered(last, oldest)):
                break
            self._chunks.remove(starts.pop(0), key)
            base = _later(base, last)
        if (base, starts) != before:
            self._chunks.write_index(key, base, starts)

    def _chunk_for(self, key: bytes, starts: list[int], at: int, time: int) -> list[Timed]:
        """Return the versions of the chunk before `starts[at]` if the time belongs to it."""
        if at == 0 or time - starts[at - 1] >= self._chunk_ms:
            return []
        versions = [*self._chunks.versions(starts[at - 1], key)]
        is_full = self._chunks.size(starts[at - 1], key) > CHUNK_BYTES and versions[-1][0] < time
        return [] if is_full else versions

    def _write(self, key: bytes, starts: list[int], index: int, versions: list[Timed]) -> None:
        """Write a chunk; split one that is too long."""
        size = self._chunks.write(starts[index], key, versions)
        if size > 2 * CHUNK_BYTES and len(versions) > 1:
            half = len(versions) // 2
            starts.insert(index + 1, versions[half][0])
            self._write(key, starts, index + 1, versions[half:])
            self._chunks.write(starts[index], key, versions[:half])

    def _is_passed(
        self, key: bytes, base: Timed | None, starts: Sequence[int], time: int, oldest: int
    ) -> bool:
        """Return whether a version older than the history precedes the last one before it."""
        last, at = base, bisect_left(starts, oldest)
        if at > 0:
            versions = self._chunks.versions(starts[at - 1], key)
            last = _later(base, versions[bisect_left(versions, oldest, key=_time_of) - 1])
        if last is None or last[0] <= time:
            return False
        return last[1] is not None or self._is_remembered(last, oldest)

    def _is_remembered(self, version: Timed, oldest: int) -> bool:
        """Return whether a version is a deletion that an older row must not undo."""
        return version[1] is None and version[0] >= oldest - self._history_ms

    def _without_past(
        self, key: bytes, base: Timed | None, starts: Sequence[int], oldest: int
    ) -> tuple[Timed | None, list[int]]:
        """Compact versions older than the history into the base, exact to the version."""
        recent, before = bisect_left(starts, oldest), (base, [*starts])
        kept: list[int] = []
        for start in starts[:recent]:
            versions = self._chunks.versions(start, key)
            later = [version for version in versions if version[0] >= oldest]
            if len(later) < len(versions):
                base = _later(base, versions[len(versions) - len(later) - 1])
                self._chunks.remove(start, key)
                if later:
                    start = later[0][0]
                    self._chunks.write(start, key, later)
            if later:
                kept.append(start)
        kept += starts[recent:]
        base = None if base is None or base[1] is None else base
        if (base, kept) != before:
            self._chunks.write_index(key, base, kept)
        return base, kept

    def _newest(self, key: bytes, base: Timed | None, starts: Sequence[int]) -> Timed | None:
        return _later(base, self._chunks.versions(starts[-1], key)[-1]) if starts else base

    def _as_entry(self, version: Timed | None) -> Entry | None:
        if version is None or version[1] is None:
            return None
        return self._decoded(version), version[0]

    def _encoded(self, value: Any) -> bytes | None:
        return value if value is None or self._encode is None else self._encode(value)

    def _decoded(self, version: Timed) -> Any:
        data = version[1]
        if data is None or self._decode is None:
            return data
        try:
            return self._decode(data)
        except raised_by_functions() as error:
            raise self._chunks.form.held.damaged(packed(*version), error) from error


def _time_of(version: Timed) -> int:
    return version[0]


def _later(base: Timed | None, last: Timed) -> Timed:
    """Return the later version: a record that comes late may be older than the base."""
    return base if base is not None and base[0] > last[0] else last
