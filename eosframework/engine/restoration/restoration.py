"""Restoration of the stores of newly assigned tasks from their changelogs (T4).

A store has a prefix of its changelog, so reading from its position to the end completes it; the end
is an offset, not a number of records, because markers and compaction leave gaps. A store is emptied
and read from the first offset where its position is of no use:

- the position is before the log's start or after its end: it belongs to another log
- the task's transaction that it has is not committed, or is another one of the same number:
  markers were written by hand, or the group's offsets were moved
- the last record that it applied is not a committed one of its changelog, which reading on from
  that record shows: the store has a transaction that was taken back, and others were committed
- the last write is so old that tombstones after it may have been compacted away: reading on would
  restore deleted keys

The end is the high watermark after T1, never the last stable offset, because committed records may
lie after the latter:

    1. a transaction is open in the changelog at offset 50: T1 ended those of the task's own id, so
       it belongs to another producer
    2. the task's previous owner committed 51 to 90 after it, and its input
    3. a reader that stops at the last stable offset misses these, and the input resumes after them

So a task waits until all of its changelogs is decided, and fails if that takes too long; its stores
stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from eosframework.engine.restoration.held_input import FIND_OPEN
from eosframework.engine.stores.state_ports import (
    Bounds,
    ChangelogReading,
    Changelogs,
    Reached,
    TaskStores,
)
from eosframework.engine.task.open_state import OpenState
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.errors import ClusterUnreachable, PositionLost, RunError
from eosframework.records import TopicPartition
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Message

SLICE_SECONDS = 0.1
"""Time that one turn reads, so that other tasks and the group are not delayed."""

RETRY_SECONDS = 1.0

EVENT_SECONDS = 5.0
"""Interval of progress events of a long restore."""

HELD_LOOK_SECONDS = 0.2
"""Interval of checks whether an open transaction has ended."""

HELD_SECONDS = 45.0
"""Default time to wait for an open transaction of another producer."""


@dataclass(slots=True)
class _Job:
    """Stores that are restored with one reader."""

    reading: ChangelogReading
    waiting: dict[TopicPartition, _Part]
    began_at: float


@dataclass(slots=True)
class _Part:
    """One store in restoration."""

    task: Task
    stores: OpenState
    store: str
    first: int
    end: int
    proof: int | None = None
    """Offset of the last record that the store has, which must be the first one read."""
    records: int = 0


@dataclass(slots=True)
class _Wait:
    """A task that has not begun to read.

    Args:
        ends: the high watermarks of its changelogs after T1.
        until: clock time at which it fails; None: no open transaction was seen.
    """

    task: Task
    ends: Mapping[TopicPartition, int]
    until: float | None = None


@dataclass(slots=True)
class Restoration:
    """Reads the changelogs of assigned tasks, a slice in each turn.

    Args:
        changelogs: the changelogs of the application.
        tombstones_kept_seconds: the time for which brokers keep a changelog's tombstones.
        clock: seconds, monotonic.
        now: seconds since the epoch.
        held_seconds: time to wait for an open transaction of another producer.
    """

    changelogs: Changelogs
    tombstones_kept_seconds: float
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    held_seconds: float = HELD_SECONDS
    _jobs: list[_Job] = field(default_factory=list[_Job])
    _waits: dict[int, _Wait] = field(default_factory=dict[int, _Wait])
    _begun: dict[int, Task] = field(default_factory=dict[int, Task])
    _not_before: float = 0.0
    _logged: tuple[float, int] | None = None
    """Clock time and remaining records of the last progress event."""

    @property
    def records_left(self) -> int:
        """The number of offsets to read."""
        return sum(
            part.end - job.reading.read_to(partition)
            for job in self._jobs
            for partition, part in job.waiting.items()
        )

    def turn(self, assigned: Sequence[Task]) -> None:
        """Begin to restore new tasks, and read on for those that are not up to date.

        Args:
            assigned: every task with stores that waits to run.

        Raises:
            RunError: a transaction of another producer stays open in a changelog.
        """
        self._forget(assigned)
        new = [task for task in assigned if id(task) not in self._begun]
        if new and self.clock() >= self._not_before:
            self._begin(new)
        until = self.clock() + SLICE_SECONDS
        while self._jobs and self.clock() < until:
            for job in list(self._jobs):
                self._read(job, until - self.clock())
        self._log_progress()

    def let_go(self, tasks: Sequence[Task]) -> None:
        """Forget tasks that run from now on.

        Such a task may be assigned again, and then lack its own commit: the outcome of its first
        commit is unknown, and the task returns in the same turn. So its earlier restoration does
        not count.
        """
        for task in tasks:
            self._begun.pop(id(task), None)

    def is_done(self, task: Task) -> bool:
        """Return whether a task's stores are up to date."""
        waits = any(part.task is task for job in self._jobs for part in job.waiting.values())
        return id(task) in self._begun and not waits

    def close(self) -> None:
        """Stop reading."""
        for job in self._jobs:
            job.reading.close()
        self._jobs.clear()

    def _forget(self, assigned: Sequence[Task]) -> None:
        """Drop the work for tasks that run or whose partitions were taken away."""
        here = {id(task) for task in assigned}
        self._begun = {name: task for name, task in self._begun.items() if name in here}
        self._waits = {name: wait for name, wait in self._waits.items() if name in here}
        for job in list(self._jobs):
            job.waiting = {
                partition: part
                for partition, part in job.waiting.items()
                if part.task.state is TaskState.ASSIGNED
            }
            self._end_if_done(job)

    def _begin(self, tasks: Sequence[Task]) -> None:
        try:
            if new := [task for task in tasks if id(task) not in self._waits]:
                self._note_ends(new)
            wanted = [p for task in tasks for p in self._waits[id(task)].ends]
            bounds = self.changelogs.bounds(wanted)
        except ClusterUnreachable as error:
            _events().warning("restore_retried", error=str(error))
            self._not_before = self.clock() + RETRY_SECONDS
            return
        if ready := [task for task in tasks if not self._is_held_back(task, bounds)]:
            self._read_from(ready, bounds)
        if len(ready) < len(tasks):
            self._not_before = self.clock() + HELD_LOOK_SECONDS

    def _note_ends(self, tasks: Sequence[Task]) -> None:
        """Note the offsets up to which tasks must read."""
        ends = self.changelogs.written_ends([p for task in tasks for p in _changelogs(task)])
        for task in tasks:
            self._waits[id(task)] = _Wait(task, {p: ends[p] for p in _changelogs(task)})

    def _is_held_back(self, task: Task, bounds: Bounds) -> bool:
        """Return whether a transaction is open in the range that a task must read.

        Raises:
            RunError: it has been open for too long.
        """
        wait = self._waits[id(task)]
        held = {p: (bounds[p][1], end) for p, end in wait.ends.items() if bounds[p][1] < end}
        if not held:
            del self._waits[id(task)]
            return False
        if wait.until is None:
            wait.until = self.clock() + self.held_seconds
            _events().warning(
                "restore_held_back",
                task=_text(task),
                offsets={str(p): stable for p, (stable, _) in held.items()},
                advice=FIND_OPEN,
            )
        if self.clock() >= wait.until:
            raise RunError(_held_back(task, held, self.held_seconds))
        return True

    def _read_from(self, tasks: Sequence[Task], bounds: Bounds) -> None:
        """Begin to read the missing part of the tasks' stores."""
        parts = {
            partition: _Part(task, task.stores, store, *bounds[partition])
            for task in tasks
            if task.stores is not None
            for store, partition in task.stores.changelogs.items()
        }
        self._begun |= {id(task): task for task in tasks}
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for partition, part in parts.items():
            stores, reached = part.stores.stores, part.task.reached
            kept_seconds, now = self.tombstones_kept_seconds, self.now()
            start = start_of(stores, part.store, bounds[partition], kept_seconds, now, reached)
            if start >= part.end:
                continue
            # The transaction of the same number and positions is the committed one.
            is_last = (
                stores.reached is not None and stores.reached.transaction >= reached.transaction
            )
            if start > part.first and not is_last:
                part.proof = start = start - 1
            ranges[partition] = (start, part.end)
        if ranges:
            _events().info(
                "restore_began", records={str(p): end - start for p, (start, end) in ranges.items()}
            )
            waiting = {partition: parts[partition] for partition in ranges}
            self._jobs.append(_Job(self.changelogs.open(ranges), waiting, self.clock()))

    def _read(self, job: _Job, seconds: float) -> None:
        batches: Mapping[TopicPartition, Sequence[Message]] = {}
        try:
            batches = job.reading.read(max(seconds, 0.0))
        except PositionLost as error:
            _events().warning("restore_retried", error=str(error))
            for part in job.waiting.values():
                part.stores.stores.clear(part.store)
                self._begun.pop(id(part.task), None)
            job.waiting.clear()
        self._apply(job, batches)
        for partition, part in list(job.waiting.items()):
            if job.reading.read_to(partition) >= part.end:
                del job.waiting[partition]
                if part.proof is not None:
                    self._rebuild(partition, part)
                    continue
                position = part.stores.stores.position(part.store)
                positions = {} if position is None else {part.store: position}
                part.stores.stores.write({}, positions, reached=part.task.reached)
                _events().info(
                    "state_restored",
                    store=part.store,
                    changelog=str(partition),
                    records=part.records,
                    seconds=round(self.clock() - job.began_at, 3),
                )
        self._end_if_done(job)

    def _apply(self, job: _Job, batches: Mapping[TopicPartition, Sequence[Message]]) -> None:
        for partition, messages in batches.items():
            part = job.waiting.get(partition)
            if part is None or not messages:
                continue
            if part.proof is not None:
                if not continues(part.stores.stores, part.store, part.proof, messages[0]):
                    del job.waiting[partition]
                    self._rebuild(partition, part)
                    continue
                part.proof = None
            changes = [(message.key() or b"", message.value()) for message in messages]
            part.records += len(changes)
            position = messages[-1].offset() + 1
            time = max(part.stores.stores.stream_time or 0, messages[-1].timestamp()[1])
            part.stores.stores.write({part.store: changes}, {part.store: position}, time)
            failpoints.hit("state.during_restore")

    def _rebuild(self, partition: TopicPartition, part: _Part) -> None:
        """Read a store that is no prefix of its changelog again, from the first offset."""
        report_taken_back(part.store, partition, part.proof)
        part.stores.stores.clear(part.store)
        part.proof = None
        reading = self.changelogs.open({partition: (part.first, part.end)})
        self._jobs.append(_Job(reading, {partition: part}, self.clock()))

    def _log_progress(self) -> None:
        """Log the progress at intervals."""
        left, now = self.records_left, self.clock()
        if left == 0 or self._logged is None:
            self._logged = (now, left) if left else None
            return
        logged_at, left_then = self._logged
        if now - logged_at >= EVENT_SECONDS:
            rate = max(left_then - left, 0) / (now - logged_at)
            _events().info("restoring", records_left=left, records_per_second=round(rate))
            self._logged = (now, left)

    def _end_if_done(self, job: _Job) -> None:
        if not job.waiting and job in self._jobs:
            job.reading.close()
            self._jobs.remove(job)


def start_of(
    stores: TaskStores,
    store: str,
    bounds: tuple[int, int],
    tombstones_kept_seconds: float,
    now: float,
    committed: Reached | None = None,
) -> int:
    """Return the first offset to read of a changelog; an unusable store is emptied.

    Args:
        stores: the stores of the task.
        store: the name of one of them.
        bounds: the first offset of its changelog, and the end of the range to read.
        tombstones_kept_seconds: the time for which brokers keep tombstones.
        now: seconds since the epoch.
        committed: the task's last committed transaction; None: it is not known.
    """
    position = stores.position(store)
    if position is None:
        return bounds[0]
    written_at = stores.written_at(store)
    age_seconds = 0.0 if written_at is None else now - written_at
    reason = None
    if committed is not None and stores.reached is not None:
        reason = stores.reached.contradiction(committed)
    if reason is None:
        reason = _out_of_place(position, bounds, age_seconds, tombstones_kept_seconds)
    if reason is None:
        return position
    _events().warning("state_rebuilt", store=store, reason=reason)
    stores.clear(store)
    return bounds[0]


def continues(stores: TaskStores, store: str, proof: int, message: Message) -> bool:
    """Return whether a store's last record is a committed one, and so is all that it has.

    Args:
        stores: the stores of a task.
        store: the name of one of them.
        proof: offset of the last record that it has applied.
        message: the first one that was read from there.
    """
    # What has expired is removed from a store, without a record.
    held = stores.store(store).get(message.key() or b"")
    return message.offset() == proof and held in (None, message.value())


def report_taken_back(store: str, changelog: TopicPartition, proof: int | None) -> None:
    """Log that a store is read again because its last record is not a committed one."""
    reason = f"its last record, offset {proof} of {changelog}, is not a committed one"
    _events().warning("state_rebuilt", store=store, reason=reason)


def _out_of_place(
    position: int, bounds: tuple[int, int], age_seconds: float, tombstones_kept_seconds: float
) -> str | None:
    first, end = bounds
    if not first <= position <= end:
        return f"its position {position} is not in the changelog, {first} to {end}"
    if position < end and age_seconds > tombstones_kept_seconds / 2:
        return f"it was last written {age_seconds:.0f} s ago; deletions may be missing"
    return None


def _changelogs(task: Task) -> list[TopicPartition]:
    return [] if task.stores is None else list(task.stores.changelogs.values())


def _text(task: Task) -> str:
    return f"{task.identity.sub_topology}[{task.identity.partition}]"


def _held_back(
    task: Task, held: Mapping[TopicPartition, tuple[int, int]], waited_seconds: float
) -> str:
    (partition, (stable, end)), *more = held.items()
    others = f" (and {', '.join(str(p) for p, _ in more)})" if more else ""
    return (
        f"the state of task {_text(task)} cannot be read: a transaction of another producer hangs "
        f"in its changelog {partition} at offset {stable}{others}, and hides what was committed "
        f"up to offset {end}; waited {waited_seconds:g} s. `eosframework txn hanging "
        f"--topic {partition.topic}` shows whose it is and the command that ends it; then start "
        f"the worker again. Nothing was read or changed: "
        f"without these records the state would not fit the committed input"
    )


def _events() -> structlog.stdlib.BoundLogger:
    return structlog.get_logger("eosframework.state")
