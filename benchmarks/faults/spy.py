"""The requests of the contestants, as they pass the proxies."""

from __future__ import annotations

import re
import struct
import threading
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

    api_key: int
    frame: bytes

    @property
    def transactional_id(self) -> str:
        return transactional_id(self.api_key, self.frame)


class Expected:
    """A request that is waited for; the first such one that passes.

    Args:
        is_it: whether a request is the one.
    """

    def __init__(self, is_it: Callable[[Sent], bool]) -> None:
        self._is_it = is_it
        self._came = threading.Event()
        self._sent: Sent | None = None

    @property
    def came(self) -> bool:
        return self._came.is_set()

    def wait(self, seconds: float) -> Sent | None:
        """Return the request, or None if none passes within `seconds`."""
        self._came.wait(seconds)
        return self._sent

    def meet(self, sent: Sent) -> bool:
        """Take a request if it is the one."""
        if self._is_it(sent):
            self._sent = sent
            self._came.set()
        return self.came


@dataclass
class Spy:
    """Sees each request, and knows which records their producer aborted.

    Args:
        aborted: stamps of records whose producer then ended their transaction by an abort.
        kinds: api keys of the requests so far.
    """

    kinds: set[int] = field(default_factory=set[int])
    aborted: set[bytes] = field(default_factory=set[bytes])
    _open: dict[str, set[bytes]] = field(default_factory=dict[str, set[bytes]])
    _expected: list[Expected] = field(default_factory=list[Expected])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def see(self, api_key: int, frame: bytes, taken: bool) -> None:
        """Take note of a request; `taken`: it does not reach the broker now."""
        with self._lock:
            self.kinds.add(api_key)
            self._note(api_key, frame, taken)
            if not taken:
                sent = Sent(api_key, frame)
                self._expected = [e for e in self._expected if not e.meet(sent)]

    def expect(self, is_it: Callable[[Sent], bool]) -> Expected:
        """Wait, from now on, for a request that passes."""
        expected = Expected(is_it)
        with self._lock:
            self._expected.append(expected)
        return expected

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
