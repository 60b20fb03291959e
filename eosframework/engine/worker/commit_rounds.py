"""Commit rounds: all tasks of a worker commit together, and the schedule of these rounds.

A commit is mostly waiting: for the brokers to store the records in flight, and for two responses.
So each producer group returns its part (steps 3 and 4), the producers make their calls at the same
time, and then each group gets the outcome of its transaction (steps 5 to 7). What failed is
recovered between the rounds; see `group_work`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from time import sleep
from typing import cast

import structlog

from eosframework.engine.task.producer_group import ProducerGroup
from eosframework.engine.task.task import Task, producer_groups
from eosframework.engine.worker.commit_interval import CommitInterval
from eosframework.engine.worker.group_work import GroupWork, Settled
from eosframework.engine.worker.settlement import WorkerSettlement
from eosframework.engine.worker.worker_plan import WorkerOptions
from eosframework.errors import TransactionError, worst
from eosframework.records import Position
from eosframework.transactions.ownership import Ownership
from eosframework.transactions.ports import Commit, InputLog, TransactionalOutputs
from eosframework.transactions.session.session_group import Counts, SessionGroup
from eosframework.transactions.session.transaction_session import TransactionSession


class CommitRounds:
    """Commits a worker's tasks, and recovers the producers of failed transactions.

    Args:
        log: has the committed offsets.
        outputs: has opened the producers.
        ownership: the claims of the tasks.
        counts: receives the numbers.
        clock: seconds, monotonic.
        on_finished: called after each round with its tasks and its duration in seconds.
        settlement: of what a database has decided; None: no task writes tables with its outputs.
    """

    def __init__(
        self,
        log: InputLog,
        outputs: TransactionalOutputs,
        ownership: Ownership,
        counts: Counts,
        options: WorkerOptions,
        clock: Callable[[], float],
        on_finished: Callable[[Sequence[Task], float], None],
        settlement: WorkerSettlement | None = None,
    ) -> None:
        self._log = log
        self._ownership = ownership
        self._settlement = settlement
        self._sessions: SessionGroup[TransactionSession[Settled], Settled] = SessionGroup(
            outputs, self._read, counts, structlog.get_logger("eosframework.recovery"), clock, sleep
        )
        self._on_finished = on_finished
        self._watermark_interval_seconds = options.watermark_interval_seconds
        self._interval = CommitInterval(
            options.commit_interval_seconds, options.transaction_timeout_seconds / 3, clock
        )
        self._has_backlog = False
        self._events = structlog.get_logger("eosframework.worker")

    def remaining_seconds(self) -> float:
        """Return the time until the next round; 0 when it is due."""
        return self._interval.remaining_seconds()

    def turn(self, tasks: Sequence[Task], *, backlog: bool) -> None:
        """Commit all open transactions if a round is due.

        Args:
            tasks: all tasks of the worker.
            backlog: whether the tasks have work.

        Raises:
            RecordFailed: a task is stopped at a record; the records before it are committed.
            RunError: no retry can succeed until an operator fixes the cause.
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        self._has_backlog = backlog
        if self._interval.is_due() or any(task.wants_commit for task in tasks):
            groups = producer_groups(tasks)
            self._commit([group for group in groups if not self._may_wait(group)])
        _raise_failure(tasks)

    def _may_wait(self, group: ProducerGroup[Task]) -> bool:
        """Return whether a transaction has taken watermarks alone, and is young."""
        is_young = group.age_seconds() < self._watermark_interval_seconds
        return is_young and not any(task.time.hurries for task in group.tasks)

    def commit(self, tasks: Sequence[Task], within_seconds: float | None = None) -> None:
        """Commit the open transactions of tasks; raises as `turn`.

        Tasks that share a producer with one of these commit with it.
        """
        self._commit(producer_groups(tasks), within_seconds)
        _raise_failure(tasks)

    def failed(self, group: ProducerGroup[Task], error: TransactionError) -> None:
        """Decide the consequence of a failed call, and take the producer's tasks out of service.

        Raises:
            RunError: no retry can succeed until an operator fixes the cause.
            RecordFailed: the broker rejects a record's output and its dead letter.
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        self._sessions.failed(group.session, error)

    def recover(self, tasks: Sequence[Task]) -> None:
        """Recover the due producers; one failed attempt costs one pause. Raises as `failed`.

        Args:
            tasks: all tasks of the worker.
        """
        self._sessions.recover([group.session for group in producer_groups(tasks)])

    def _read(self, sessions: Sequence[TransactionSession[Settled]]) -> list[Settled]:
        """Read the stable committed positions of each task (R2); without a commit, its start.

        Before that the entries are written anew (K6), and decisions are settled (V4, V6).
        """
        groups = [cast(GroupWork, session.work).group for session in sessions]
        by_task = {task.identity: task.partitions for group in groups for task in group.tasks}
        self._ownership.renew(by_task)
        if self._settlement is not None:
            self._settlement.settle(by_task, [group.output for group in groups])
        stable = self._log.committed([p for group in groups for p in group.partitions])
        if self._settlement is not None:
            self._settlement.refuse_other_offsets(by_task, stable)
        found = iter(stable)
        return [
            {task: _or_start(task, islice(found, len(task.partitions))) for task in group.tasks}
            for group in groups
        ]

    def _commit(
        self, groups: Sequence[ProducerGroup[Task]], within_seconds: float | None = None
    ) -> None:
        """Collect the parts of the producer groups, and commit them."""
        ready: list[ProducerGroup[Task]] = []
        commits: list[Commit] = []
        failures: list[BaseException] = []
        try:
            self._collect(groups, ready, commits)
        except BaseException as error:
            failures.append(error)
        # Also if a group ends the worker: the results and changes of the others are in their
        # transactions by now, and a second collection would add them twice.
        try:
            self._run(ready, commits, within_seconds)
        except BaseException as error:
            failures.append(error)
        for error in failures if len(failures) > 1 else ():
            self._events.error("round_failed", error=str(error))
        if failures:
            raise worst(failures)

    def _collect(
        self,
        groups: Sequence[ProducerGroup[Task]],
        ready: list[ProducerGroup[Task]],
        commits: list[Commit],
    ) -> None:
        for group in groups:
            if not group.has_open_progress:
                continue
            try:
                commits.append(group.commit())
                ready.append(group)
            except TransactionError as error:
                self.failed(group, error)

    def _run(
        self,
        ready: Sequence[ProducerGroup[Task]],
        commits: Sequence[Commit],
        within_seconds: float | None,
    ) -> None:
        """Commit, and pass each result to its producer group (steps 5 to 7)."""
        if not commits:
            self._interval.round_took(0.0, backlog=self._has_backlog)
            return
        sessions = [group.session for group in ready]
        took = self._sessions.commit(sessions, commits, within_seconds)
        # The replacement of a producer is no measure of the next round.
        measure = 0.0 if took.recycled else took.seconds
        if stretched := self._interval.round_took(measure, backlog=self._has_backlog):
            self._events.warning("commit_interval_stretched", seconds=round(stretched, 3))
        self._on_finished([t for b in ready for t in b.tasks], took.seconds)


def _or_start(task: Task, found: Iterable[Position]) -> list[Position]:
    return [
        position
        if position.offset is not None
        else replace(position, offset=task.committed_offset(position.topic_partition))
        for position in found
    ]


def _raise_failure(tasks: Sequence[Task]) -> None:
    for task in tasks:
        if task.failure is not None and not task.has_open_progress:
            raise task.failure
