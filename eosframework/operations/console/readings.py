"""Readings: results of slow functions, shared by all requests and kept while new ones fail.

1. A page asks for a reading by name, with the age at which it is too old.
2. If it is too old, one thread reads again; other requests for the name join it.
3. The page waits for a limited time, then gets the newest state: a value, an older value with the
   error of the newest attempt, or neither, if the first attempt is not done yet.

So a page is never slower than its wait, an unavailable cluster is asked once and not once for each
browser, and the page recovers with the first reading that succeeds.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar, cast

import structlog

from eosframework.application.composition.application_status import ApplicationStatus
from eosframework.errors import EosError
from eosframework.records import TopicPartition
from eosframework.serialization.bounds import READINGS, READINGS_AT_ONCE, READINGS_BYTES
from eosframework.state.query import as_json

RATE_SECONDS = 30.0
"""Period of a rate."""

_MOST_OWNERSHIPS = 50
"""Number of ownerships that are kept for each task."""

_MOST_EVENTS = 200


@dataclass(frozen=True, slots=True)
class TaskOwners:
    """The owner of a task from a moment on, until the next ownership of the task.

    Args:
        owner: name of a member; None: the task has no owner.
        since: time of the reading that showed it.
    """

    owner: str | None
    since: datetime


@dataclass(frozen=True, slots=True)
class Event:
    """A change between two readings.

    Args:
        text: description for people.
    """

    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class _Offsets:
    seconds: float
    by_partition: Mapping[str, int]


class History:
    """Observations from consecutive readings of one application since the console started.

    Args:
        clock: in seconds; differences count.
        now: the time of day.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.began_at = now()
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._committed: deque[_Offsets] = deque()
        self._ends: deque[_Offsets] = deque()
        self._last_commits: dict[str, datetime] = {}
        self._owners: dict[str, deque[TaskOwners]] = {}
        self._counts: dict[str, Mapping[str, Any]] = {}
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)

    def observe(self, status: ApplicationStatus, ends: Mapping[TopicPartition, int]) -> None:
        """Note a reading of the cluster.

        Args:
            status: of the application.
            ends: end offsets of the topics that it writes.
        """
        committed = {
            partition.partition: partition.committed
            for task in status.tasks
            for partition in task.partitions
            if partition.committed is not None
        }
        with self._lock:
            last = self._committed[-1].by_partition if self._committed else dict[str, int]()
            for name, offset in committed.items():
                if name in last and offset != last[name]:
                    self._last_commits[name] = self._now()
            self._add(self._committed, committed)
            self._add(self._ends, {str(p): offset for p, offset in ends.items()})
            for task in status.tasks:
                self._own(task.task, task.owner)

    def observe_process(self, address: str, answer: Mapping[str, Any]) -> None:
        """Note a process's answer to `/status`."""
        with self._lock:
            before = self._counts.get(address, {})
            name = answer.get("instance") or answer.get("process")
            if before and before.get("instance") != answer.get("instance"):
                self._event(f"{address}: {name} answers instead of {before.get('instance')}")
            elif before:
                for count in ("fences", "recycles"):
                    more = (answer.get(count) or 0) - (before.get(count) or 0)
                    if more > 0:
                        self._event(f"{name}: {more} {count} more")
                    elif more < 0:
                        self._event(f"{name} at {address} was started again")
                        break
            self._counts[address] = answer

    def processed_per_second(self, topic: str | None = None) -> float | None:
        """Return the rate at which committed offsets move; None: not known yet.

        Args:
            topic: None: all source topics.
        """
        return self._rate(self._committed, topic)

    def written_per_second(self, topic: str) -> float | None:
        """Return the rate at which a topic's log grows; None: not known yet."""
        return self._rate(self._ends, topic)

    def last_commit(self, partition: str) -> datetime | None:
        """Return when a partition's committed offset was last seen to move; None: never."""
        return self._last_commits.get(partition)

    @property
    def ownerships(self) -> dict[str, list[TaskOwners]]:
        """The ownerships of each task, the oldest first."""
        with self._lock:
            return {task: list(owners) for task, owners in self._owners.items()}

    @property
    def events(self) -> list[Event]:
        """The last changes, the newest first."""
        with self._lock:
            return list(reversed(self._events))

    def _own(self, task: str, owner: str | None) -> None:
        owners = self._owners.setdefault(task, deque(maxlen=_MOST_OWNERSHIPS))
        if owners and owners[-1].owner == owner:
            return
        if owners:
            self._event(f"{task}: {_named(owners[-1].owner)} → {_named(owner)}")
        owners.append(TaskOwners(owner, self._now()))

    def _event(self, text: str) -> None:
        self._events.append(Event(self._now(), text))

    def _add(self, samples: deque[_Offsets], offsets: Mapping[str, int]) -> None:
        now = self._clock()
        # One sample of at least that age stays, so that the period is not shorter.
        while len(samples) > 1 and samples[1].seconds <= now - RATE_SECONDS:
            samples.popleft()
        samples.append(_Offsets(now, offsets))

    def _rate(self, samples: deque[_Offsets], topic: str | None) -> float | None:
        with self._lock:
            if len(samples) < 2:
                return None
            taken, last = list(samples), samples[-1]
        names = [n for n in last.by_partition if topic is None or n.startswith(f"{topic}[")]
        # A partition that was committed for the first time since then is in no earlier sample.
        known = (sample for sample in taken if any(name in sample.by_partition for name in names))
        first = next(known, last)
        common = [name for name in names if name in first.by_partition]
        if not common or last.seconds <= first.seconds:
            return None
        moved = sum(max(0, last.by_partition[n] - first.by_partition[n]) for n in common)
        return moved / (last.seconds - first.seconds)


def _named(owner: str | None) -> str:
    return "no owner" if owner is None else owner


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Reading(Generic[Value]):
    """The newest state of a reading.

    Args:
        value: the result of the newest attempt that succeeded; None: there was none.
        read_at: time of that result.
        error: message of the newest attempt, if it failed.
        is_reading: an attempt is running.
    """

    value: Value | None = None
    read_at: datetime | None = None
    error: str | None = None
    is_reading: bool = False


class _Entry:
    def __init__(self, name: str) -> None:
        self.value: Any = None
        self.size = len(name)
        self.read_at: datetime | None = None
        self.error: str | None = None
        self.done_at: float | None = None
        self.running: threading.Event | None = None

    @property
    def shown(self) -> Reading[Any]:
        is_reading = self.running is not None
        return Reading(self.value, self.read_at, self.error, is_reading)


class Readings:
    """The readings of a process, bounded in number and in bytes.

    The one that was asked for longest ago is dropped first.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def get(
        self,
        name: str,
        read: Callable[[], Value],
        *,
        max_age_seconds: float,
        wait_seconds: float,
    ) -> Reading[Value]:
        """Return a reading, after an attempt if it is too old and the attempt is quick.

        Args:
            name: of the reading; the same name always has the same function.
            read: raises an EosError whose message the page shows.
            max_age_seconds: age from which it is read again.
            wait_seconds: longest wait for an attempt.
        """
        with self._lock:
            entry = self._entry(name)
            age = None if entry.done_at is None else self._clock() - entry.done_at
            is_old = age is None or age >= max_age_seconds
            if is_old and entry.running is None and not self._start(name, entry, read):
                return Reading(entry.value, entry.read_at, "the console is busy; ask again")
            running = entry.running
        if running is not None:
            running.wait(wait_seconds)
        with self._lock:
            return cast("Reading[Value]", entry.shown)

    def look(self, name: str) -> Reading[Any]:
        """Return a reading as it is; one that nothing has asked for is empty."""
        with self._lock:
            entry = self._entries.get(name)
            return Reading() if entry is None else entry.shown

    def forget(self, name: str) -> None:
        """Read `name` again at its next request, whatever its age."""
        with self._lock:
            if (entry := self._entries.get(name)) is not None:
                entry.done_at = None

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.setdefault(name, _Entry(name))
        self._entries.move_to_end(name)
        self._drop_old()
        return entry

    def _drop_old(self) -> None:
        size = sum(entry.size for entry in self._entries.values())
        for name, entry in list(self._entries.items()):
            if len(self._entries) <= READINGS.value and size <= READINGS_BYTES.value:
                break
            if entry.running is None:
                del self._entries[name]
                size -= entry.size

    def _start(self, name: str, entry: _Entry, read: Callable[[], Any]) -> bool:
        if sum(one.running is not None for one in self._entries.values()) >= READINGS_AT_ONCE.value:
            return False
        entry.running = threading.Event()
        # A daemon: a call to an unavailable broker must not keep the process from ending.
        threading.Thread(
            target=self._run, args=(name, entry, read), name=f"read {name}", daemon=True
        ).start()
        return True

    def _run(self, name: str, entry: _Entry, read: Callable[[], Any]) -> None:
        value: Any = None
        error: str | None = None
        try:
            value = read()
        except EosError as failure:
            error = str(failure)
        except Exception as failure:
            structlog.get_logger("eosframework.console").exception("reading_failed", reading=name)
            error = f"{type(failure).__name__}: {failure}"
        size = len(name) + _size_of(value)
        with self._lock:
            if error is None:
                entry.value, entry.read_at, entry.size = value, datetime.now(UTC), size
            entry.error, entry.done_at = error, self._clock()
            done, entry.running = entry.running, None
            self._drop_old()
        if done is not None:
            done.set()


def _size_of(value: Any) -> int:
    """Return the size of a value as text."""
    try:
        return len(as_json(value))
    except TypeError:  # orjson takes no integers above 64 bits
        return len(repr(value))
