"""Watermarks of upstream tasks, and the stream time of a task that reads them (ADR 20).

A watermark is a record of a repartition topic: its upstream tasks promise to write no further
record with a time of writing below it to this partition. Its key is a constant that no serializer
produces, so readers skip it without reading headers. Its value has one part for each task:

    1 byte    0: no JSON text begins with it
    1 byte    version of the format
    13 bytes  for each task: its number (4), its watermark in milliseconds (8), 1 if it is idle (1)

Stream time of a task that reads such topics is the least watermark of all upstream tasks. An idle
one may be passed, up to the least time of the others; if all are idle, up to the greatest. That it
is idle is a claim of a process that may be gone: `worker/quiet_tasks` decides when its logs have
been read to their ends. A task that has sent no watermark holds stream time. A source without
watermarks counts like an upstream task, with the greatest event time of its records.

The time of writing of a record, in a header of repartition topics (ADR 20).
A record's time of writing, L, is the stream time of its first writer when that ran it; it is at
least the record's event time. Whether a record is late, and what is still open to it, follows from
L, so it does not depend on how fast the tasks are that write a repartition topic. Only a record out
of order has the header; before a reorder step (`reordering`) each record has it, with its
upstream task. It stays on the record through further repartition topics; the generated code removes
it where it reads the record.

    8 bytes   the time of writing in milliseconds since the epoch, big-endian
    4 bytes   only before a reorder step: the partition number of the upstream task
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, cast

from eosframework.engine.operators.store_transaction import Journal, StoreTransaction
from eosframework.errors import RunError

HEADER_WRITTEN = "__eos.time"

_TIME = struct.Struct(">q")
_TIME_AND_WRITER = struct.Struct(">qI")

_Headers = list[tuple[str, bytes | None]]


def with_written(headers: Iterable[tuple[str, bytes | None]] | None, written: int) -> _Headers:
    """Return headers with a time of writing, in milliseconds since the epoch."""
    return [*(headers or ()), (HEADER_WRITTEN, _TIME.pack(written))]


def with_writer(
    headers: Iterable[tuple[str, bytes | None]] | None, written: int, writer: int
) -> _Headers:
    """Return headers with a time of writing and the partition number of the upstream task."""
    return [*(headers or ()), (HEADER_WRITTEN, _TIME_AND_WRITER.pack(written, writer))]


def writer_in(headers: _Headers | None) -> int:
    """Return the partition number of the upstream task that wrote a record; 0: unknown."""
    for name, value in headers or ():
        if name == HEADER_WRITTEN and value is not None and len(value) == _TIME_AND_WRITER.size:
            return _TIME_AND_WRITER.unpack(value)[1]
    return 0


def take_written(headers: _Headers, timestamp: int) -> tuple[_Headers | None, int]:
    """Return headers without the time of writing, and that time.

    Args:
        headers: of a record in a repartition topic.
        timestamp: its event time in milliseconds: the time of writing of a record in order.
    """
    written = timestamp
    for name, value in headers:
        if name == HEADER_WRITTEN:
            written = max(written, _time_in(value))
    left = [header for header in headers if header[0] != HEADER_WRITTEN]
    return left or None, written


def written_time(headers: object, timestamp: int) -> int:
    """Return a record's time of writing; its headers are those of a message, or None."""
    return timestamp if not headers else take_written(cast("_Headers", headers), timestamp)[1]


def _time_in(value: bytes | None) -> int:
    if value is None or len(value) not in (_TIME.size, _TIME_AND_WRITER.size):
        return 0
    return _TIME.unpack_from(value)[0]


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
        self._passed: dict[Upstream | str, int] = {}
        """By idle source, the time up to which stream time may pass it."""
        self._slowest = 0
        """The least time of the upstream tasks."""
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
        self._passed.clear()
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

    def own_is_idle(self, topic: str) -> None:
        """Note that a source without watermarks is idle."""
        self._idle_own.add(topic)

    @property
    def others(self) -> int:
        """The least time of the sources that are not idle; the greatest of all if all are."""
        active = [time for time, is_idle in self._known.values() if not is_idle]
        active += [self._own[topic] for topic in self.active_own]
        return min(active) if active else self._greatest

    @property
    def held_by(self) -> list[Upstream | str]:
        """The idle sources that have not been passed up to the time of the others."""
        if len(self._known) < len(self._upstream):
            return []
        idle = [upstream for upstream, (_, is_idle) in self._known.items() if is_idle]
        if not idle and not self._idle_own:
            return []
        until = self.others
        # If all are idle, each is passed: the last records of a feed would wait for the next feed.
        is_over = len(idle) == len(self._known) and not self.active_own
        behind = (s for s in (*idle, *self._idle_own) if is_over or self._time_of(s) < until)
        return [source for source in behind if self._passed.get(source, -1) < until]

    def pass_sources(self, sources: Collection[Upstream | str], until: int) -> int:
        """Let stream time pass sources that are still idle, and return it.

        Args:
            sources: their logs were read to the ends when the others had reached `until`.
            until: the time of the others.
        """
        for source in sources:
            if source in self._idle_own or self._known.get(cast("Upstream", source), (0, False))[1]:
                self._passed[source] = max(until, self._passed.get(source, 0))
        self._find_slowest()
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
    def all_are_passed(self) -> bool:
        """True if every source is idle, and stream time has passed them all."""
        if self.active_own or len(self._known) < len(self._upstream):
            return False
        if not all(is_idle for _, is_idle in self._known.values()):
            return False
        until = self._greatest
        return all(self._passed.get(source, -1) >= until for source in (*self._known, *self._own))

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

    @property
    def _greatest(self) -> int:
        times = [*self._own.values(), *(time for time, _ in self._known.values())]
        return max(times, default=0)

    def _time_of(self, source: Upstream | str) -> int:
        """Return the time of a source, or that up to which it is passed."""
        if isinstance(source, str):
            time, is_idle = self._own[source], source in self._idle_own
        else:
            time, is_idle = self._known[source]
        return max(time, self._passed.get(source, 0)) if is_idle else time

    def _find_slowest(self) -> None:
        self._slowest = min(map(self._time_of, self._known), default=0)

    def _move(self) -> None:
        """Move stream time to the least time of all sources."""
        if len(self._known) == len(self._upstream):
            self.now = max(self.now, min([self._slowest, *map(self._time_of, self._own)]))


def _key(upstream: Upstream) -> bytes:
    return _TASK + _NUMBER.pack(upstream.task) + upstream.topic.encode()
