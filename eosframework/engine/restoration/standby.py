"""Standby copies of other workers' stores, so that a takeover reads only the tail of a changelog.

A copy is a store like any other: its content is a prefix of its changelog, stored with its
position. It is filled by following the changelog, `read_committed`, and no task reads it. When its
task is assigned to this worker, the copy becomes the task's store and is restored like any store
found on disk.

1. look: read the members of the group, and so the tasks whose copies belong here
   (`standby_assignment`)
2. adjust: open wanted copies, one in a turn; close the others
3. follow: read the changelogs in the time that the running tasks leave
4. certify: record at intervals that a copy is complete, so that it counts as written although no
   record came; a copy that misses more than the brokers keep of tombstones is begun anew, like any
   store
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from eosframework.engine.restoration.restoration import continues, report_taken_back, start_of
from eosframework.engine.restoration.standby_assignment import Member, standby_members
from eosframework.engine.stores.state_ports import (
    ChangelogReading,
    Changelogs,
    CopyBackend,
    StoreIdentity,
    TaskStores,
)
from eosframework.errors import EosError, PositionLost, RunError
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Message

LOOK_SECONDS = 3.0
"""Interval of reads of the group's members; a change is applied once two reads agree."""

SLICE_SECONDS = 0.03
"""The longest read of one turn."""

BUSY_SECONDS = 0.5
"""Interval of reads of one batch while tasks have records to run."""

RETRY_SECONDS = 30.0
"""Pause after a copy could not be opened or written."""

CERTIFICATES = 50
"""Number of certifications within the time for which brokers keep tombstones."""

TOO_SLOW = "it has not had everything for so long that deletions may be missing"

TaskName = tuple[str, int]
"""Sub-topology and partition."""


class GroupLook(Protocol):
    """Asks for the members of the group without blocking."""

    def ask(self) -> None:
        """Send a request, unless one is pending."""
        ...

    def answer(self) -> Sequence[Member] | None:
        """Return the answer, once; None: there is none yet."""
        ...

    def close(self) -> None:
        """Stop asking."""
        ...


@dataclass(frozen=True, slots=True)
class StandbyPlan:
    """The standby copies of an application.

    Args:
        instance: this worker's name in the group.
        copies: the number of copies of each task, on all workers together.
        tasks: the number of tasks of each sub-topology with stores.
        stores: the stores of each sub-topology.
        changelogs: the changelog topic of each store.
        tombstones_kept_seconds: the time for which brokers keep a changelog's tombstones.
    """

    instance: str
    copies: int
    tasks: Mapping[str, int]
    stores: Mapping[str, Sequence[StoreIdentity]]
    changelogs: Mapping[str, str]
    tombstones_kept_seconds: float


@dataclass(slots=True)
class _Copy:
    """The copies of one task's stores.

    Args:
        parts: by changelog partition, the store.
        whole_at: by store, the time at which it was last complete, or begun.
        ends_at_start: by changelog partition, the high watermark when reading began.
        proofs: by changelog partition, the offset of the last record that the store has; it must
            be the first one read.
    """

    stores: TaskStores
    parts: dict[TopicPartition, str]
    whole_at: dict[str, float] = field(default_factory=dict[str, float])
    ends_at_start: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    proofs: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])

    def is_taken_back(self, changelog: TopicPartition, messages: Sequence[Message]) -> bool:
        """Return whether the last record of a store turns out not to be a committed one."""
        if not messages or (proof := self.proofs.pop(changelog, None)) is None:
            return False
        store = self.parts[changelog]
        if continues(self.stores, store, proof, messages[0]):
            return False
        report_taken_back(store, changelog, proof)
        return True

    def apply(self, store: str, messages: Sequence[Message]) -> None:
        """Apply messages; the write time of the copy stays the time at which it was complete."""
        if messages:
            changes = [(message.key() or b"", message.value()) for message in messages]
            position = messages[-1].offset() + 1
            time = max(self.stores.stream_time or 0, messages[-1].timestamp()[1])
            self.stores.write(
                {store: changes}, {store: position}, time, whole_at=self.whole_at[store]
            )


class Standby:
    """The copies that this worker keeps.

    Args:
        plan: the standby copies of the application.
        backend: opens them.
        changelogs: the changelogs of the application.
        group: asks for the members of the group.
        clock: seconds, monotonic.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        plan: StandbyPlan,
        backend: CopyBackend,
        changelogs: Changelogs,
        group: GroupLook,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._backend = backend
        self._changelogs = changelogs
        self._group = group
        self._clock = clock
        self._now = now
        self._copies: dict[TaskName, _Copy] = {}
        self._wanted: frozenset[TaskName] = frozenset()
        self._seen: frozenset[TaskName] | None = None
        self._reading: ChangelogReading | None = None
        self._is_stale = False
        """True if the reader also reads copies that were handed over."""
        self._look_at = self._read_at = self._open_at = 0.0
        self._certify_at = clock() + plan.tombstones_kept_seconds / CERTIFICATES

    @property
    def tasks(self) -> list[TaskName]:
        """The tasks that have copies here."""
        return sorted(self._copies)

    def hand_over(self, task: TaskName) -> TaskStores | None:
        """Return the copy of a task's stores as the task's own; None: there is none."""
        copy = self._copies.pop(task, None)
        if copy is None:
            return None
        self._is_stale = True
        self._backend.own(copy.stores)
        positions = {name: copy.stores.position(name) for name in copy.parts.values()}
        _events().info("standby_taken_over", task=_text(task), positions=positions)
        return copy.stores

    def turn(self, owned: Collection[TaskName], *, busy: bool) -> None:
        """Look, adjust, follow and certify.

        Args:
            owned: the tasks of this worker.
            busy: they have records to run, or wait for their own state.
        """
        self._look()
        try:
            self._adjust(self._wanted.difference(owned))
            self._follow(busy=busy)
            self._certify()
        except EosError as error:
            # The tasks run without copies.
            _events().warning("standby_retried", error=str(error))
            self._stop_reading()
            self._open_at = self._clock() + RETRY_SECONDS

    def close(self) -> None:
        """Close all copies; they stay on this machine."""
        self._stop_reading()
        self._group.close()
        for copy in self._copies.values():
            copy.stores.close()
        self._copies.clear()

    def _look(self) -> None:
        members = self._group.answer()
        if members is not None:
            wanted = self._choose(members)
            if wanted == self._seen:
                self._wanted = wanted
            self._seen = wanted
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + LOOK_SECONDS
            self._group.ask()

    def _choose(self, members: Sequence[Member]) -> frozenset[TaskName]:
        plan = self._plan
        return frozenset(
            (name, partition)
            for name, tasks in plan.tasks.items()
            for partition, chosen in enumerate(standby_members(members, tasks, plan.copies))
            if any(member.instance == plan.instance for member in chosen)
        )

    def _adjust(self, wanted: frozenset[TaskName]) -> None:
        if self._is_stale:
            self._stop_reading()
        for task in self._copies.keys() - wanted:
            self._give_up(task, "another worker keeps it, or none is needed")
        missing = sorted(wanted - self._copies.keys())
        if self._clock() < self._open_at:
            return
        if missing:
            self._begin(missing[0])
        elif self._reading is None and self._copies:
            self._start_reading()

    def _begin(self, task: TaskName) -> None:
        name, partition = task
        try:
            stores = self._backend.keep_copy(
                f"{name}-{partition}", self._plan.tasks[name], self._plan.stores[name]
            )
        except RunError as error:
            _events().warning("standby_retried", task=_text(task), error=str(error))
            self._open_at = self._clock() + RETRY_SECONDS
            return
        topics = self._plan.changelogs
        parts = {
            TopicPartition(topics[store.name], partition): store.name
            for store in self._plan.stores[name]
        }
        self._copies[task] = _Copy(stores, parts)
        self._stop_reading()

    def _start_reading(self) -> None:
        """Read on from the position of each copy, if possible.

        Raises:
            ClusterUnreachable: the bounds of the changelogs cannot be read.
        """
        parts = {p: copy for copy in self._copies.values() for p in copy.parts}
        # A copy that was the task's own may be ahead of the last stable offset.
        ends = self._changelogs.written_ends(list(parts))
        bounds = self._changelogs.bounds(list(parts))
        starts: dict[TopicPartition, tuple[int, int]] = {}
        for partition, copy in parts.items():
            first, end = bounds[partition][0], ends[partition]
            start = start_of(
                copy.stores,
                copy.parts[partition],
                (first, end),
                self._plan.tombstones_kept_seconds,
                self._now(),
            )
            self._note_start(copy, copy.parts[partition])
            copy.ends_at_start[partition] = end
            copy.proofs.pop(partition, None)
            if start > first:
                copy.proofs[partition] = start = start - 1
            starts[partition] = start, sys.maxsize
        self._reading = self._changelogs.open(starts)
        for task, copy in self._copies.items():
            left = {
                str(p): max(copy.ends_at_start[p] - starts[p][0] - (p in copy.proofs), 0)
                for p in copy.parts
            }
            _events().info("standby_follows", task=_text(task), records_left=left)

    def _note_start(self, copy: _Copy, store: str) -> None:
        """Note when a store was complete; an empty one is read from its start."""
        is_empty = copy.stores.position(store) is None
        written_at = copy.stores.written_at(store)
        copy.whole_at[store] = self._now() if is_empty or written_at is None else written_at

    def _follow(self, *, busy: bool) -> None:
        if busy and self._clock() < self._read_at:
            return
        self._read_at = self._clock() + BUSY_SECONDS
        until = self._clock() + SLICE_SECONDS
        while self._read() and not busy and self._clock() < until:
            pass

    def _read(self) -> bool:
        """Apply new messages, and return whether there were any."""
        reading = self._reading
        if reading is None:
            return False
        try:
            batches = reading.read(0.0)
        except PositionLost as error:
            # The next start reads the bounds, and finds the copies concerned.
            _events().warning("standby_retried", error=str(error))
            self._stop_reading()
            self._open_at = self._clock() + 1.0
            return False
        for task, copy in list(self._copies.items()):
            try:
                for partition, store in copy.parts.items():
                    messages = batches.get(partition, ())
                    if copy.is_taken_back(partition, messages):
                        copy.stores.clear(store)
                        self._stop_reading()  # The next start reads this store from its first.
                    else:
                        copy.apply(store, messages)
            except RunError as error:
                self._give_up(task, str(error))
                self._open_at = self._clock() + RETRY_SECONDS
            else:
                self._log_if_complete(task, copy, reading)
        return any(batches.values())

    def _log_if_complete(self, task: TaskName, copy: _Copy, reading: ChangelogReading) -> None:
        """Log once that a copy has everything that existed when it was begun."""
        if copy.ends_at_start and all(
            reading.read_to(p) >= end for p, end in copy.ends_at_start.items()
        ):
            copy.ends_at_start.clear()
            _events().info("standby_up_to_date", task=_text(task))

    def _certify(self) -> None:
        """Record which copies are complete; one that was incomplete for too long is begun anew.

        Complete means up to the last stable offset: brokers compact nothing after it, so a copy
        that is blocked by an open transaction misses no tombstone.

        Raises:
            ClusterUnreachable: the ends of the changelogs cannot be read.
        """
        reading, kept_seconds = self._reading, self._plan.tombstones_kept_seconds
        if reading is None or self._clock() < self._certify_at:
            return
        self._certify_at = self._clock() + kept_seconds / CERTIFICATES
        asked_at = self._now()
        bounds = self._changelogs.bounds([p for c in self._copies.values() for p in c.parts])
        for copy in self._copies.values():
            for partition, store in copy.parts.items():
                read_to = reading.read_to(partition)
                if read_to >= bounds[partition][1]:
                    copy.whole_at[store] = asked_at
                    position = copy.stores.position(store)
                    if position is not None:
                        copy.stores.write({}, {store: position}, whole_at=asked_at)
                elif asked_at - copy.whole_at[store] > kept_seconds / 2:
                    _events().warning("state_rebuilt", store=store, reason=TOO_SLOW)
                    copy.stores.clear(store)
                    self._stop_reading()

    def _give_up(self, task: TaskName, reason: str) -> None:
        self._copies.pop(task).stores.close()
        self._stop_reading()
        _events().info("standby_ended", task=_text(task), reason=reason)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None
        self._is_stale = False


def _text(task: TaskName) -> str:
    return f"{task[0]}[{task[1]}]"


def _events() -> structlog.stdlib.BoundLogger:
    return structlog.get_logger("eosframework.state")
