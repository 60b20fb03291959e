"""Watermarks of upstream tasks, and the stream time of a task that reads them (ADR 20).

A watermark is a record of a repartition topic: its upstream tasks promise to write no further
record with a time of writing below it to this partition. Its key is a constant that no serializer
produces, so readers skip it without reading headers. Its value has one part for each task:

    1 byte    0: no JSON text begins with it
    1 byte    version of the format
    13 bytes  for each task: its number (4), its watermark in milliseconds (8), 1 if it is idle (1)

Stream time of a task that reads such topics is the least watermark of all upstream tasks. An idle
one is left out: at the end of its sources it writes nothing that could be late. If all are idle,
the greatest counts. A task that has sent no watermark holds stream time. A source without
watermarks counts like an upstream task, with the greatest event time of its records.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from eosframework.errors import RunError
from eosframework.operators.store_transaction import Journal, StoreTransaction

WATERMARK_KEY = b"\0eos.watermark\0" + bytes.fromhex("5d1f0b7c9e4a4f6d8a3c2e71b09f6d14")

_HEAD = b"\0\1"
_PART = struct.Struct(">IqB")
_NUMBER = struct.Struct(">I")
_OWN = b"own"
_TASK = b"task"
_IDLE = b"i"


class Announcement(NamedTuple):
    """The watermark of one upstream task for a partition.

    Args:
        task: its partition number.
        time: in milliseconds; no later record of the task has a lower time of writing.
        is_idle: the task is at the end of its sources.
    """

    task: int
    time: int
    is_idle: bool


def encode_watermark(announced: Iterable[Announcement]) -> bytes:
    """Return the value of a watermark record."""
    return _HEAD + b"".join(_PART.pack(one.task, one.time, one.is_idle) for one in announced)


def decode_watermark(value: bytes | None) -> list[Announcement]:
    """Return the announcements of a watermark record.

    Raises:
        ValueError: another version wrote it.
    """
    if value is None or value[:2] != _HEAD or (len(value) - 2) % _PART.size:
        raise ValueError("a watermark of another version")
    return [Announcement(t, at, bool(idle)) for t, at, idle in _PART.iter_unpack(value[2:])]


class WatermarkMessage(Protocol):
    """The part of a consumed watermark that is read."""

    def topic(self) -> str:
        """The topic it was read from."""
        ...

    def value(self) -> bytes | None:
        """The encoded announcements."""
        ...


class Upstream(NamedTuple):
    """An upstream task: of a topic, with its partition number; hashed for each announcement."""

    topic: str
    task: int


class UpstreamTimes:
    """Stream time of a task that reads timed topics.

    Args:
        store: the transaction of its store, with values of bytes.
        journal: the journal of that transaction, for itself.
        upstream: number of upstream tasks, by topic.
        own: the sources without watermarks whose records move time, by topic.

    Attributes:
        now: stream time; it never goes back.
        taken: the number of watermarks that were read.
        passed_over: records below stream time: their upstream task or source counted as idle.
    """

    def __init__(
        self,
        store: StoreTransaction,
        journal: Journal,
        upstream: Mapping[str, int],
        own: Collection[str] = (),
    ) -> None:
        self._store = store
        self._journal = journal
        self._upstream = {
            Upstream(topic, task) for topic, tasks in upstream.items() for task in range(tasks)
        }
        self.now = self.taken = self.passed_over = 0
        self._own = dict.fromkeys(own, 0)
        self._idle_own: set[str] = set()
        self._known: dict[Upstream, tuple[int, bool]] = {}
        self._changed: set[Upstream | str] = set()
        self._slowest: int | None = None
        """The least watermark of the upstream tasks that are not idle; None: all are idle."""
        self._is_loaded = False

    def start_at(self, stream_time: int) -> None:
        """Set the committed stream time; the store is read with the first record."""
        self.now, self._is_loaded = stream_time, False

    def begin(self) -> None:
        """Load the committed times, before the first record."""
        if self._is_loaded:
            return
        self._is_loaded = True
        self._changed.clear()
        self._known.clear()
        self._idle_own.clear()
        for topic in self._own:
            entry = self._store.get(_OWN + topic.encode())
            self._own[topic] = 0 if entry is None else entry[1]
        for upstream in self._upstream:
            entry = self._store.get(_key(upstream))
            if entry is not None:
                self._known[upstream] = entry[1], entry[0] == _IDLE
        self._find_slowest()

    def take(self, message: WatermarkMessage, stream_time: int) -> int:
        """Take a watermark, and return stream time after it.

        Args:
            message: the record.
            stream_time: before it.

        Raises:
            RunError: another version of eosframework wrote it.
        """
        try:
            announced = decode_watermark(message.value())
        except ValueError as error:
            raise RunError(
                f"topic {message.topic()!r} contains {error}; run the newest version of "
                f"eosframework that has written to it"
            ) from error
        self.taken += 1
        topic, is_new = message.topic(), False
        for task, time, is_idle in announced:
            upstream = Upstream(topic, task)
            if upstream not in self._upstream:
                continue
            before = self._known.get(upstream)
            now = max(time, before[0]) if before else time, is_idle
            if now != before:
                self._known[upstream] = now
                self._changed.add(upstream)
                is_new = True
        if is_new:
            self._find_slowest()
            self._move()
        return self.now if self.now > stream_time else stream_time

    def moved(self, topic: str, timestamp: int) -> int:
        """Take the event time of a record of a source without watermarks.

        Returns:
            The greatest event time of the source: the record's time of writing.
        """
        self._idle_own.discard(topic)
        if timestamp > self._own[topic]:
            self._own[topic] = timestamp
            self._changed.add(topic)
            self._move()
        written = self._own[topic]
        if written < self.now:
            self.passed_over += 1
        return written

    def own_is_idle(self, topic: str) -> int:
        """Note that a source without watermarks is idle; return stream time after it."""
        self._idle_own.add(topic)
        self._move()
        return self.now

    def passed(self) -> int:
        """Count a record below stream time, and return stream time."""
        self.passed_over += 1
        return self.now

    @property
    def missing(self) -> list[Upstream]:
        """The upstream tasks that have sent no watermark; they hold stream time."""
        found = self._upstream - self._known.keys()
        return sorted(found, key=lambda upstream: (upstream.topic, upstream.task))

    @property
    def is_idle(self) -> bool:
        """True if every upstream task is idle."""
        return len(self._known) == len(self._upstream) and self._slowest is None

    @property
    def all_are_idle(self) -> bool:
        """True if every upstream task is idle, and so are sources without watermarks."""
        return self.is_idle and not self.waits_for_own

    @property
    def waits_for_own(self) -> bool:
        """True if sources without watermarks hold stream time unless they are idle."""
        return bool(self.active_own)

    @property
    def active_own(self) -> list[str]:
        """The sources without watermarks that are not idle, by topic."""
        return [topic for topic in self._own if topic not in self._idle_own]

    def write(self) -> None:
        """Write the changed times to the store; before a commit."""
        for upstream in self._changed:
            if isinstance(upstream, str):
                self._store.put(_OWN + upstream.encode(), (b"", self._own[upstream]))
            else:
                time, is_idle = self._known[upstream]
                self._store.put(_key(upstream), (_IDLE if is_idle else b"", max(time, 0)))
        self._changed.clear()
        self._journal.clear()

    def _find_slowest(self) -> None:
        active = [time for time, is_idle in self._known.values() if not is_idle]
        self._slowest = min(active, default=None)

    def _move(self) -> None:
        """Move stream time to the least time of what is not idle."""
        if len(self._known) < len(self._upstream):
            return
        times = [] if self._slowest is None else [self._slowest]
        times += [self._own[topic] for topic in self.active_own]
        if not times:
            times = [max([*self._own.values(), *(time for time, _ in self._known.values())])]
        self.now = max(self.now, min(times))


def _key(upstream: Upstream) -> bytes:
    return _TASK + _NUMBER.pack(upstream.task) + upstream.topic.encode()
