"""The console's memory of consecutive readings: rates, last commits, takeovers and fences."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from eosframework.records import TopicPartition
from eosframework.runtime.application_status import ApplicationStatus

RATE_SECONDS = 30.0
"""Period of a rate."""

MOST_OWNERSHIPS = 50
"""Number of ownerships that are kept for each task."""

MOST_EVENTS = 200


@dataclass(frozen=True, slots=True)
class Ownership:
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
        self._owners: dict[str, deque[Ownership]] = {}
        self._counts: dict[str, Mapping[str, Any]] = {}
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)

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

    def processed_per_second(self, topic: str) -> float | None:
        """Return the rate at which committed offsets of a topic move; None: not known yet."""
        return self._rate(self._committed, topic)

    def written_per_second(self, topic: str) -> float | None:
        """Return the rate at which a topic's log grows; None: not known yet."""
        return self._rate(self._ends, topic)

    def last_commit(self, partition: str) -> datetime | None:
        """Return when a partition's committed offset was last seen to move; None: never."""
        return self._last_commits.get(partition)

    @property
    def ownerships(self) -> dict[str, list[Ownership]]:
        """The ownerships of each task, the oldest first."""
        with self._lock:
            return {task: list(owners) for task, owners in self._owners.items()}

    @property
    def events(self) -> list[Event]:
        """The last changes, the newest first."""
        with self._lock:
            return list(reversed(self._events))

    def _own(self, task: str, owner: str | None) -> None:
        owners = self._owners.setdefault(task, deque(maxlen=MOST_OWNERSHIPS))
        if owners and owners[-1].owner == owner:
            return
        if owners:
            self._event(f"{task}: {_named(owners[-1].owner)} → {_named(owner)}")
        owners.append(Ownership(owner, self._now()))

    def _event(self, text: str) -> None:
        self._events.append(Event(self._now(), text))

    def _add(self, samples: deque[_Offsets], offsets: Mapping[str, int]) -> None:
        now = self._clock()
        # One sample of at least that age stays, so that the period is not shorter.
        while len(samples) > 1 and samples[1].seconds <= now - RATE_SECONDS:
            samples.popleft()
        samples.append(_Offsets(now, offsets))

    def _rate(self, samples: deque[_Offsets], topic: str) -> float | None:
        with self._lock:
            if len(samples) < 2:
                return None
            first, last = samples[0], samples[-1]
        names = [n for n in last.by_partition if n.startswith(f"{topic}[")]
        common = [name for name in names if name in first.by_partition]
        if not common or last.seconds <= first.seconds:
            return None
        moved = sum(max(0, last.by_partition[n] - first.by_partition[n]) for n in common)
        return moved / (last.seconds - first.seconds)


def _named(owner: str | None) -> str:
    return "no owner" if owner is None else owner
