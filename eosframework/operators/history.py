"""Rows of a table with their past: which row was current at a given time.

    b"k" + key                  when the row last known to be older than the history came to be,
                                that row, and the slices that hold later versions
    b"s" + slice (8) + key      the versions of one slice of time, in the order of their times

A lookup takes two or three exact reads, however many versions there are; a change rewrites the
versions of one slice. What is older than the history goes out slice by slice, from the front.
"""

from __future__ import annotations

import struct
from bisect import bisect_right, insort
from collections.abc import Callable
from typing import Any

from eosframework.operators.entries import Entry
from eosframework.operators.packing import Timed, packed, packed_all, unpacked
from eosframework.operators.session import StoreSession
from eosframework.serdes import Serde

SLICES = 16
"""Into so many slices a history is divided."""

_TIME = struct.Struct(">Q")
_INDEX, _SLICE = b"k", b"s"


class History:
    """The versions of each row; a `StoreSession` of bytes holds them.

    Args:
        session: of the store.
        rows: serde of the rows.
        history_ms: how far back rows are known.
    """

    def __init__(self, session: StoreSession, rows: Serde, history_ms: int) -> None:
        self._session = session
        self._encode: Callable[[Any], bytes] | None = rows.encode
        self._decode: Callable[[bytes], Any] | None = rows.decode
        self._history_ms = history_ms
        self._slice_ms = max(1, history_ms // SLICES)

    def change(self, key: bytes, value: Any, timestamp: int, stream_time: int) -> tuple[bool, Any]:
        """Take a version of a row; see `rows.Change`.

        One that is older than the current row is kept for lookups and changes nothing else, as in
        Kafka Streams (KIP-914). Of two versions of one time the last one counts.
        """
        time = max(timestamp, 0)
        base, slices = self._index(key)
        current = self._newest(key, base, slices)
        self._insert(key, base, slices, (time, self._encoded(value)), stream_time)
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
        base, slices = self._index(key)
        latest = time // self._slice_ms
        for slice_ in reversed(slices):
            if slice_ > latest:
                continue
            found = [version for version in self._versions(slice_, key) if version[0] <= time]
            if found:
                return self._as_entry(found[-1])
        return self._as_entry(base if base is not None and base[0] <= time else None)

    def forget(self, stream_time: int) -> None:
        """Remove versions that no lookup can find any more."""
        end = _slice_key(self._oldest(stream_time), b"")
        gone = [name for name, _ in self._session.scan(_SLICE, end)]
        for name in gone:
            key, slice_ = name[9:], _TIME.unpack_from(name, 1)[0]
            base, slices = self._index(key)
            slices.remove(slice_)
            self._write_index(key, self._folded(base, slice_, key), slices)

    def _insert(
        self,
        key: bytes,
        base: Timed | None,
        slices: list[int],
        version: Timed,
        stream_time: int,
    ) -> None:
        slice_ = version[0] // self._slice_ms
        before = list(slices)
        versions = self._versions(slice_, key) if slice_ in slices else []
        at = bisect_right(versions, version[0], key=lambda each: each[0])
        if at > 0 and versions[at - 1][0] == version[0]:
            versions[at - 1] = version
        else:
            versions.insert(at, version)
        self._session.put(_slice_key(slice_, key), (packed_all(versions), version[0]))
        if slice_ not in slices:
            insort(slices, slice_)
        oldest = self._oldest(stream_time)
        while slices and slices[0] < oldest:
            base = self._folded(base, slices.pop(0), key)
        if slices != before:
            self._write_index(key, base, slices)

    def _folded(self, base: Timed | None, slice_: int, key: bytes) -> Timed:
        """Remove a slice that is over; return the last version of it and all before."""
        last = self._versions(slice_, key)[-1]
        self._session.delete(_slice_key(slice_, key))
        return base if base is not None and base[0] > last[0] else last

    def _oldest(self, stream_time: int) -> int:
        return max(0, stream_time - self._history_ms) // self._slice_ms

    def _newest(self, key: bytes, base: Timed | None, slices: list[int]) -> Timed | None:
        return self._versions(slices[-1], key)[-1] if slices else base

    def _versions(self, slice_: int, key: bytes) -> list[Timed]:
        entry = self._session.get(_slice_key(slice_, key))
        return [] if entry is None else list(unpacked(entry[0]))

    def _index(self, key: bytes) -> tuple[Timed | None, list[int]]:
        entry = self._session.get(_INDEX + key)
        if entry is None:
            return None, []
        data: bytes = entry[0]
        count = data[0]
        slices = list(struct.unpack_from(f">{count}Q", data, 1))
        return next(unpacked(data[1 + 8 * count :]), None), slices

    def _write_index(self, key: bytes, base: Timed | None, slices: list[int]) -> None:
        if not slices and (base is None or base[1] is None):
            self._session.delete(_INDEX + key)
            return
        data = struct.pack(f">B{len(slices)}Q", len(slices), *slices)
        if base is not None:
            data += packed(*base)
        self._session.put(_INDEX + key, (data, slices[-1] * self._slice_ms if slices else 0))

    def _as_entry(self, version: Timed | None) -> Entry | None:
        if version is None or version[1] is None:
            return None
        return self._decoded(version[1]), version[0]

    def _encoded(self, value: Any) -> bytes | None:
        return value if value is None or self._encode is None else self._encode(value)

    def _decoded(self, data: bytes | None) -> Any:
        return data if data is None or self._decode is None else self._decode(data)


def _slice_key(slice_: int, key: bytes) -> bytes:
    return _SLICE + _TIME.pack(slice_) + key
