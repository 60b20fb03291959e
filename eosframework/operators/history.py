"""Rows of a table with their past: which row was current at a given time.

    b"k" + key                  the last version that is older than the history, and where the
                                chunks of later versions begin
    b"c" + start (8) + key      the versions from this time to where the next chunk begins

A lookup takes two exact reads, however many versions there are; a change rewrites one chunk. What
is older than the history goes out chunk by chunk, from the front.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from eosframework.operators.entries import Entry
from eosframework.operators.packing import Timed, packed, packed_all, unpacked
from eosframework.operators.session import StoreSession
from eosframework.operators.timed import Alarm, Closing
from eosframework.serdes import Serde

CHUNKS = 16
"""Into about so many chunks the history of a row is divided."""

CHUNK_BYTES = 16_384
"""A chunk that is longer takes no version at its end, and one twice as long is divided: entries are
written whole, and brokers take no messages of any size."""

_TIME = struct.Struct(">Q")
_COUNT = struct.Struct(">I")
_INDEX, _CHUNK = b"k", b"c"


class History(Closing):
    """The versions of each row; a `StoreSession` of bytes holds them.

    Args:
        session: of the store.
        rows: serde of the rows.
        history_ms: how far back rows are known.
        alarm: is set to when versions can be removed.
    """

    def __init__(self, session: StoreSession, rows: Serde, history_ms: int, alarm: Alarm) -> None:
        super().__init__(alarm)
        self._session = session
        self._encode: Callable[[Any], bytes] | None = rows.encode
        self._decode: Callable[[bytes], Any] | None = rows.decode
        self._history_ms = history_ms
        self._chunk_ms = max(1, history_ms // CHUNKS)
        self._due = 0

    def change(self, key: bytes, value: Any, timestamp: int, stream_time: int) -> tuple[bool, Any]:
        """Take a version of a row; see `rows.Change`.

        One that is older than the current row is kept for lookups and changes nothing else, as in
        Kafka Streams (KIP-914). Of two versions of one time the last one counts. That a row was
        deleted longer ago than the history is forgotten.
        """
        time = max(timestamp, 0)
        base, starts = self._index(key)
        if time < stream_time - self._history_ms:
            base, starts = self._without_past(key, base, starts, stream_time - self._history_ms)
        current = self._newest(key, base, starts)
        self._insert(key, base, starts, (time, self._encoded(value)), stream_time)
        if current is not None and current[0] > time:
            return False, None
        before = None if current is None else self._decoded(current[1])
        return value is not None or before is not None, before

    def row(self, key: bytes) -> Entry | None:
        """Return the current row with its timestamp."""
        return self._as_entry(self._newest(key, *self._index(key)))

    def row_at(self, key: bytes, time: int, stream_time: int) -> Entry | None:
        """Return the row that was current at a time; None also where that is not known any more.

        Args:
            key: encoded.
            time: in milliseconds.
            stream_time: of the task; what is longer ago than the history counts as not known.
        """
        if time < stream_time - self._history_ms:
            return None
        base, starts = self._index(key)
        found = base if base is not None and base[0] <= time else None
        at = bisect_right(starts, time)
        if at > 0:
            versions = self._versions(starts[at - 1], key)
            found = _later(found, [v for v in versions if v[0] <= time][-1])
        return self._as_entry(found)

    def begin(self) -> None:
        """Look through the store once, at the next commit."""
        self._due = 0
        self.alarm.set(0)

    def due(self) -> int:
        """Return when it is worth to look for what can be removed."""
        return self._due

    def closing(self, now: int) -> Iterator[Any]:
        """Remove versions that no lookup can find any more; nothing goes on."""
        oldest = max(0, now - self._history_ms)
        chunks = self._session.scan(_CHUNK, _chunk_key(max(0, oldest - self._chunk_ms), b""))
        for name in [name for name, _ in chunks]:
            key, start = name[9:], _TIME.unpack_from(name, 1)[0]
            base, starts = self._index(key)
            last = self._versions(start, key)[-1]
            if last[0] < oldest:
                starts.remove(start)
                self._session.delete(name)
                self._write_index(key, _later(base, last), starts)
        self._due = now + self._chunk_ms
        yield from ()

    def _insert(
        self,
        key: bytes,
        base: Timed | None,
        starts: list[int],
        version: Timed,
        stream_time: int,
    ) -> None:
        """Add a version to its chunk; where that becomes too long, or there is none, begin one."""
        time, before = version[0], (base, list(starts))
        at = bisect_right(starts, time)
        versions = self._chunk_for(key, starts, at, time)
        if not versions:
            starts.insert(at, time)
            at += 1
        place = bisect_right(versions, time, key=lambda each: each[0])
        if place > 0 and versions[place - 1][0] == time:
            versions[place - 1] = version
        else:
            versions.insert(place, version)
        self._write_chunk(key, starts, at - 1, versions)
        oldest = stream_time - self._history_ms
        while starts and starts[0] < oldest - self._chunk_ms:
            last = self._versions(starts[0], key)[-1]
            if last[0] >= oldest:
                break
            self._session.delete(_chunk_key(starts.pop(0), key))
            base = _later(base, last)
        if (base, starts) != before:
            self._write_index(key, base, starts)

    def _chunk_for(self, key: bytes, starts: list[int], at: int, time: int) -> list[Timed]:
        """Return the versions of the chunk before `starts[at]` if this time belongs to it."""
        if at == 0 or time - starts[at - 1] >= self._chunk_ms:
            return []
        entry = self._session.get(_chunk_key(starts[at - 1], key))
        assert entry is not None, "the index names chunks that exist"
        versions = list(unpacked(entry[0]))
        is_full = len(entry[0]) > CHUNK_BYTES and versions[-1][0] < time
        return [] if is_full else versions

    def _write_chunk(
        self, key: bytes, starts: list[int], index: int, versions: list[Timed]
    ) -> None:
        """Write a chunk; one that is too long as two."""
        data = packed_all(versions)
        if len(data) > 2 * CHUNK_BYTES and len(versions) > 1:
            half = len(versions) // 2
            starts.insert(index + 1, versions[half][0])
            self._write_chunk(key, starts, index + 1, versions[half:])
            data = packed_all(versions[:half])
        self._session.put(_chunk_key(starts[index], key), (data, starts[index]))

    def _without_past(
        self, key: bytes, base: Timed | None, starts: list[int], oldest: int
    ) -> tuple[Timed | None, list[int]]:
        """Take what is older than the history together, to the version, where that was only due."""
        kept: list[int] = []
        for start in starts:
            versions = self._versions(start, key)
            later = [version for version in versions if version[0] >= oldest]
            if len(later) < len(versions):
                base = _later(base, versions[len(versions) - len(later) - 1])
                self._session.delete(_chunk_key(start, key))
                if later:
                    start = later[0][0]
                    self._session.put(_chunk_key(start, key), (packed_all(later), later[-1][0]))
            if later:
                kept.append(start)
        base = None if base is None or base[1] is None else base
        self._write_index(key, base, kept)
        return base, kept

    def _newest(self, key: bytes, base: Timed | None, starts: list[int]) -> Timed | None:
        return _later(base, self._versions(starts[-1], key)[-1]) if starts else base

    def _versions(self, start: int, key: bytes) -> list[Timed]:
        entry = self._session.get(_chunk_key(start, key))
        assert entry is not None, "the index names chunks that exist"
        return list(unpacked(entry[0]))

    def _index(self, key: bytes) -> tuple[Timed | None, list[int]]:
        entry = self._session.get(_INDEX + key)
        if entry is None:
            return None, []
        data: bytes = entry[0]
        (count,) = _COUNT.unpack_from(data)
        starts = list(struct.unpack_from(f">{count}Q", data, _COUNT.size))
        return next(unpacked(data[_COUNT.size + 8 * count :]), None), starts

    def _write_index(self, key: bytes, base: Timed | None, starts: list[int]) -> None:
        if not starts and (base is None or base[1] is None):
            self._session.delete(_INDEX + key)
            return
        data = struct.pack(f">I{len(starts)}Q", len(starts), *starts)
        if base is not None:
            data += packed(*base)
        self._session.put(_INDEX + key, (data, starts[-1] if starts else 0))

    def _as_entry(self, version: Timed | None) -> Entry | None:
        if version is None or version[1] is None:
            return None
        return self._decoded(version[1]), version[0]

    def _encoded(self, value: Any) -> bytes | None:
        return value if value is None or self._encode is None else self._encode(value)

    def _decoded(self, data: bytes | None) -> Any:
        return data if data is None or self._decode is None else self._decode(data)


def _chunk_key(start: int, key: bytes) -> bytes:
    return _CHUNK + _TIME.pack(start) + key


def _later(base: Timed | None, last: Timed) -> Timed:
    """Return the later version: one that comes late may be older than the base."""
    return base if base is not None and base[0] > last[0] else last
