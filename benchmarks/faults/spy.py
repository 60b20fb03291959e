"""The requests of the contestants, as they pass the proxies."""

from __future__ import annotations

import re
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.faults.proxy import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

GROUP_HEARTBEATS = (68, 88)
"""Api keys of ConsumerGroupHeartbeat and StreamsGroupHeartbeat."""

_FLEXIBLE_FROM = {
    PRODUCE: 9,
    INIT_PRODUCER_ID: 2,
    ADD_PARTITIONS: 3,
    ADD_OFFSETS: 3,
    END_TXN: 3,
    TXN_OFFSET_COMMIT: 3,
    68: 0,
    88: 0,
}
"""By api key, the first version whose strings have lengths as variable integers."""

_STAMPS = re.compile(rb'"by": ?"([0-9]+-[0-9]+)"')
"""Of the records in a request; contestants do not compress."""


def commits(frame: bytes) -> bool:
    """Tell whether an EndTxn commits."""
    (version,) = struct.unpack(">h", frame[6:8])
    # Flexible versions end with an empty section of tagged fields.
    return bool(frame[-2 if version >= _FLEXIBLE_FROM[END_TXN] else -1])


def aborts(frame: bytes) -> bool:
    """Tell whether an EndTxn aborts."""
    return not commits(frame)


def begins_to_join(api_key: int, frame: bytes) -> bool:
    """Tell whether a request makes its sender a member of a group."""
    if api_key not in GROUP_HEARTBEATS:
        return api_key == JOIN_GROUP
    _, rest = _string(frame, *_body(api_key, frame))
    _, rest = _string(frame, rest, True)
    return struct.unpack(">i", frame[rest : rest + 4]) == (0,)


def transactional_id(api_key: int, frame: bytes) -> str:
    """Return the id in a request that begins with one; "": it has none."""
    found, _ = _string(frame, *_body(api_key, frame))
    return found.decode(errors="replace")


def _body(api_key: int, frame: bytes) -> tuple[int, bool]:
    """Return where the body begins, and whether its strings are compact."""
    version, _, client = struct.unpack(">hih", frame[6:14])
    flexible = version >= _FLEXIBLE_FROM.get(api_key, 1000)
    return 14 + max(client, 0) + flexible, flexible


def _string(frame: bytes, start: int, compact: bool) -> tuple[bytes, int]:
    """Return a string and where the next field begins."""
    if not compact:
        (size,) = struct.unpack(">h", frame[start : start + 2])
        start += 2
    else:
        size, shift = 0, 0
        while True:
            byte = frame[start]
            start += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        size -= 1
    end = start + max(size, 0)
    return frame[start:end], end


@dataclass(frozen=True)
class Sent:
    """A request that passed."""

    number: int
    api_key: int
    frame: bytes

    @property
    def transactional_id(self) -> str:
        return transactional_id(self.api_key, self.frame)


@dataclass
class Spy:
    """Sees each request, and knows which records their producer aborted.

    Args:
        aborted: stamps of records whose producer then ended their transaction by an abort.
    """

    aborted: set[bytes] = field(default_factory=set[bytes])
    _open: dict[str, set[bytes]] = field(default_factory=dict[str, set[bytes]])
    _seen: int = 0
    _waiting: list[tuple[Callable[[Sent], bool], list[Sent], threading.Event]] = field(
        default_factory=list[tuple[Callable[[Sent], bool], list[Sent], threading.Event]]
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def see(self, api_key: int, frame: bytes, taken: bool) -> None:
        """Take note of a request; `taken`: it does not reach the broker now."""
        self._note(api_key, frame, taken)
        if taken:
            return
        self._seen += 1
        sent = Sent(self._seen, api_key, frame)
        with self._lock:
            waiting = list(self._waiting)
        for is_it, found, event in waiting:
            if not found and is_it(sent):
                found.append(sent)
                event.set()

    def wait(
        self, is_it: Callable[[Sent], bool], seconds: float, act: Callable[[], object] | None = None
    ) -> Sent | None:
        """Return the first such request that passes from now on, or None after `seconds`.

        Args:
            act: called when requests are watched.
        """
        found: list[Sent] = []
        entry = (is_it, found, threading.Event())
        with self._lock:
            self._waiting.append(entry)
        try:
            if act is not None:
                act()
            deadline = time.monotonic() + seconds
            entry[2].wait(max(0.0, deadline - time.monotonic()))
            return found[0] if found else None
        finally:
            with self._lock:
                self._waiting.remove(entry)

    def _note(self, api_key: int, frame: bytes, taken: bool) -> None:
        if api_key == PRODUCE:
            name = transactional_id(api_key, frame)
            self._open.setdefault(name, set()).update(_STAMPS.findall(frame))
        elif api_key == INIT_PRODUCER_ID and not taken:
            self._open.pop(transactional_id(api_key, frame), None)
        elif api_key == END_TXN and not taken:
            stamps = self._open.pop(transactional_id(api_key, frame), set())
            if aborts(frame):
                self.aborted |= stamps
