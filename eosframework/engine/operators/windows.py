"""Windows of event time: their entries in a store, and when they close.

The base of operators whose state ends with time.
Time is the task's stream time. A window that stream time has passed accepts no record, whether it
was removed or not: lateness follows from times alone, so removal can wait for a commit.

Encoding of windows in a store.
Windows with fixed starts have one entry each, under their start and the key. Sliding windows and
sessions, whose bounds depend on the key's records, share one entry per key:

8 bytes   start, signed
8 bytes   end, signed
8 bytes   timestamp in milliseconds since the epoch
1 byte    whether it was closed
4 bytes   length of the value
rest      the value, by the store's serde

One further entry, with version byte 0, names the windows that the store was made for.

The due times of keys, as index entries in a store, of which a bounded part is in memory.
An index entry lies under its time and the key. It may be too early, never too late: when it is due,
the key is checked, and noted for a later time if its windows are still open. So a session that
grows does not move an index entry with each record.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, nsmallest
from itertools import islice
from typing import Any, NamedTuple

from eosframework.engine.operators.entries import Entry, EntryFormat
from eosframework.engine.operators.store_transaction import StoreTransaction
from eosframework.errors import RunError, raised_by_functions
from eosframework.records import WindowResult
from eosframework.topology.spec.keyed_spec import Window, windows_in_words

MARK_KEY = b"\xff"
"""Sorts after every key that begins with a time."""

START = struct.Struct(">Q")
"""The prefix of keys that begin with a time: milliseconds since the epoch."""

_SPAN_BYTES = 250
"""Memory of a sliding or session window besides the bytes of its value."""

_HEAD = struct.Struct(">BQ")
_SPAN = struct.Struct(">qqQ?I")


@dataclass(frozen=True, slots=True)
class _Mark:
    """The windows that a store was made for; its timestamp: up to when the clock closed them.

    Args:
        signature: the signature of the windows.
    """

    signature: str


class Span(NamedTuple):
    """A window of one key.

    Args:
        timestamp: the greatest timestamp of its records.
        closed: whether its final result was emitted.
        raw: the encoded value.
    """

    start: int
    end: int
    timestamp: int
    closed: bool
    raw: bytes


class WindowFormat(EntryFormat):
    """The format of windows with one entry each."""

    __slots__ = ()

    def encode(self, entry: Entry) -> bytes:
        """Return the bytes of an entry."""
        if type(entry[0]) is _Mark:
            return _HEAD.pack(0, entry[1]) + entry[0].signature.encode()
        return EntryFormat.encode(self, entry)

    def read(self, data: bytes) -> Entry:
        """Return the entry; see `EntryFormat.read`."""
        if data[0] == 0:
            return _Mark(data[_HEAD.size :].decode()), _HEAD.unpack_from(data)[1]
        return EntryFormat.read(self, data)


class SpansFormat(EntryFormat):
    """The format of windows that share an entry: its value is a tuple of `Span`."""

    __slots__ = ()

    @property
    def is_immutable(self) -> bool:
        """Always true: the values are bytes within a tuple."""
        return True

    def encode(self, entry: Entry) -> bytes:
        """Return the bytes of an entry."""
        value, timestamp = entry
        if type(value) is _Mark:
            return _HEAD.pack(0, timestamp) + value.signature.encode()
        parts = [_HEAD.pack(self.version, timestamp)]
        for start, end, latest, closed, raw in value:
            parts += _SPAN.pack(start, end, latest, closed, len(raw)), raw
        return b"".join(parts)

    def read(self, data: bytes) -> Entry:
        """Return the entry; values of an older version are converted to the current one."""
        version, timestamp = _HEAD.unpack_from(data)
        if version == 0:
            return _Mark(data[_HEAD.size :].decode()), timestamp
        spans: list[Span] = []
        place = _HEAD.size
        while place < len(data):
            start, end, latest, closed, length = _SPAN.unpack_from(data, place)
            place += _SPAN.size
            if length > len(data) - place:
                raise struct.error(f"a window of {length} bytes is cut after {len(data) - place}")
            raw = data[place : place + length]
            if version != self.version:
                raw = self.encode_value(self.decode_value(raw, version))
            spans.append(Span(start, end, latest, closed, raw))
            place += length
        return tuple(spans), timestamp

    def value_of(self, span: Span) -> Any:
        """Return the value of a window.

        Raises:
            EntryDamaged: it cannot be decoded.
        """
        try:
            return self.decode_value(span.raw, self.version)
        except raised_by_functions() as error:
            start, end, latest, closed, raw = span
            part = _SPAN.pack(start, end, latest, closed, len(raw)) + raw
            raise self.held.damaged(part, error) from error

    def size(self, value: Any) -> int:
        """Return the approximate memory of the windows of a key, in bytes."""
        if type(value) is _Mark or not value:
            return 0
        # Called with every change, so the first window's size is taken for all.
        return len(value) * (_SPAN_BYTES + len(value[0].raw))

    def encode_value(self, value: Any) -> bytes:
        """Return the bytes of one window's value."""
        encode = self.serde.encode
        return encode(value) if encode else value


NEVER = 1 << 63
"""Later than every time."""

Result = tuple[Any, int]
"""An emitted value and its timestamp."""

_Update = Callable[[bytes, Any, int, int], "Sequence[Result] | None"]
"""Takes key, value and timestamp of a record and the stream time; returns the results to emit.
None: the record is late."""

Closed = tuple[bytes, WindowResult, int]
"""The key of a window, its result, and its timestamp."""


class Alarm:
    """The stream time at which the first of several operators is due."""

    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due = NEVER

    def set(self, due: int) -> None:
        """Make the alarm due at `due` or earlier."""
        if due < self.due:
            self.due = due


@dataclass(frozen=True, slots=True)
class Alarms:
    """The alarms of a task.

    Args:
        closes: a window closes and emits its result; checked after every record.
        ends: state can be removed; checked before a commit.
    """

    closes: Alarm = field(default_factory=Alarm)
    ends: Alarm = field(default_factory=Alarm)


class TimedState(ABC):
    """State of one keyed node in one task that is removed when its time has passed.

    Args:
        alarm: set to the time at which state is due.
    """

    def __init__(self, alarm: Alarm) -> None:
        self.alarm = alarm

    @abstractmethod
    def begin(self) -> None:
        """Load the content of the store, which may have been replaced."""

    @abstractmethod
    def due(self) -> int:
        """Return the stream time from which `closing` has work, or earlier."""

    @abstractmethod
    def closing(self, now: int) -> Generator[Any]:
        """Remove the state that `now` has passed, and yield the results that this emits.

        None is yielded for a removal without a result: the caller may end the generator after each
        step, and what is left is still due.
        """


class WindowOperator(TimedState):
    """The windows of one keyed node in one task.

    Args:
        store: the transaction of its store.
        window: the window that the node declares.
        alarm: set to the time at which a window is due.
    """

    def __init__(self, store: StoreTransaction, window: Window, alarm: Alarm) -> None:
        super().__init__(alarm)
        self.window = window
        self._store = store
        self._floor = 0

    _floor_of_new = 0
    """The floor of a new store."""

    @abstractmethod
    def update(self, key: bytes, value: Any, timestamp: int, now: int) -> Sequence[Result] | None:
        """Take a record; see `_Update`."""

    @property
    def floor(self) -> int:
        """The time up to which the clock has closed windows."""
        return self._floor

    @abstractmethod
    def closing(self, now: int) -> Generator[Closed | None]:
        """Yield each window that `now` closes, and remove those that have ended.

        A window counts as closed when the next one is requested, so a window whose result failed
        stays open.
        """

    @abstractmethod
    def changed(self) -> Iterator[Closed]:
        """Yield each window that the open transaction changed, with its last result."""

    @abstractmethod
    def load(self) -> None:
        """Load the due times from the store."""

    @abstractmethod
    def last_close(self) -> int:
        """Return the stream time that would close every window; 0: none is open."""

    def begin(self) -> None:
        """Load the content of the store, which may have been replaced.

        Raises:
            RunError: the store was made for other windows.
        """
        mark: Entry | None = self._store.get(MARK_KEY)
        signature = self.window.signature
        if mark is None and next(iter(self._store.scan()), None) is None:
            self._store.put(MARK_KEY, mark := (_Mark(signature), self._floor_of_new))
        if mark is None or mark[0].signature != signature:
            found = (
                "values without windows" if mark is None else windows_in_words(mark[0].signature)
            )
            raise RunError(
                f"store {self._store.form.store!r} holds {found}, and the topology declares "
                f"{windows_in_words(signature)}; give the step another store name: store: NAME. "
                f"The new store begins empty"
            )
        self._floor = mark[1]
        self.load()
        self.alarm.set(self.due())

    def close_by_clock(self) -> int:
        """Mark all open windows as closed, and return the stream time that closes them.

        Records that arrive later for one of these windows are late; other operators are unaffected.
        """
        now = self.last_close()
        if now > self._floor:
            self._floor = now
            self._store.put(MARK_KEY, (_Mark(self.window.signature), now))
        return now


INDEX, DATA = b"\x00", b"\x01"
"""The prefix of index entries, and the prefix of all others."""

_IN_MEMORY = 20_000
"""Index entries in memory after loading; at most twice as many later."""

_NOTHING: Entry = ((), 0)


class Agenda:
    """The index entries of one store.

    Args:
        store: the transaction of the store.
        in_memory: the number of entries kept in memory.
    """

    def __init__(self, store: StoreTransaction, in_memory: int = _IN_MEMORY) -> None:
        self._store = store
        self._in_memory = in_memory
        self._near: list[tuple[int, bytes]] = []
        self._horizon: tuple[int, bytes] | None = None
        """The last entry in memory; None: all are."""

    def load(self) -> None:
        """Load the first entries into memory."""
        found = islice(self._store.scan(INDEX, DATA), self._in_memory)
        time_in = self._store.form.time_in
        self._near = [(time_in(START, key, 1), key[1 + START.size :]) for key, _ in found]
        is_all = len(self._near) < self._in_memory
        self._horizon = None if is_all else self._near[-1]

    def add(self, due: int, key: bytes, entry: Entry = _NOTHING) -> None:
        """Note a key for a time, with a value."""
        self._store.put(_index_key(due, key), entry)
        if self._horizon is not None and (due, key) > self._horizon:
            return
        heappush(self._near, (due, key))
        if len(self._near) > 2 * self._in_memory:
            self._near = nsmallest(self._in_memory, self._near)
            self._horizon = self._near[-1]

    def entry(self, due: int, key: bytes) -> Entry | None:
        """Return the value noted with a key for a time."""
        return self._store.get(_index_key(due, key))

    def change(self, due: int, key: bytes, entry: Entry) -> None:
        """Replace the value noted with a key."""
        self._store.put(_index_key(due, key), entry)

    def first(self) -> tuple[int, bytes] | None:
        """Return the earliest note with its time; None: there is none.

        It may be a note of a record that failed.
        """
        if not self._near and self._horizon is not None:
            self.load()
        return self._near[0] if self._near else None

    def due(self) -> int:
        """Return the time of the earliest note."""
        first = self.first()
        return NEVER if first is None else first[0]

    def cancel(self, due: int, key: bytes) -> bool:
        """Remove a note, and return whether it existed; it is invalid for `pass_first`."""
        was_one = self._store.get(_index_key(due, key)) is not None
        if was_one:
            self._store.delete(_index_key(due, key))
        return was_one

    def take_first(self) -> bool:
        """Remove the earliest note, and return whether it was valid."""
        due, key = self._near[0]
        was_one = self.pass_first()
        if was_one:
            self.cancel(due, key)
        return was_one

    def pass_first(self) -> bool:
        """Advance past the earliest note, and return whether it was valid.

        A note is invalid if it was cancelled, noted twice, or noted by a record that failed. It
        stays in the store until it is cancelled.
        """
        return self._store.get(_index_key(*heappop(self._near))) is not None

    def put_back(self, due: int, key: bytes) -> None:
        """Take back that a valid note was passed."""
        heappush(self._near, (due, key))

    def remove_first(self) -> None:
        """Remove the earliest note."""
        self._store.delete(_index_key(*heappop(self._near)))


def _index_key(due: int, key: bytes) -> bytes:
    return INDEX + START.pack(due) + key
