"""Commit rounds: the tasks that commit together, the schedule, and the work meanwhile.

A commit is mostly waiting: for the brokers to store the records in flight, and for two responses.
So a round is begun on the main thread, waited for on other threads, and finished on the main
thread:

    begin    each producer group returns its part (steps 3 and 4); other threads make the calls, one
    for each producer
    ...      the main thread fetches, and runs the tasks that are not in the round
    finish   each producer group gets the outcome of its transaction (steps 5 to 7)

With two turns one half of the tasks works while the other half commits; without waiting records all
of them commit at once. A task in a round runs nothing, because its producer is in the commit;
records fetched for it wait.

One round exists at a time. A slow round is waited for, and all other tasks join it first: a broker
that does not answer one task must not keep the others from committing in time. Every call that
needs the tasks' producers, or releases tasks, waits for the round first. So does a rebalance, in
its callback:

    1. A's round is in progress; the worker fetches; the group takes A's partition away
    2. if A were released now, its producer would be closed inside its commit
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import structlog

from eosframework.errors import TransactionError
from eosframework.processing.ports import Commit, CommitRound, TransactionalOutputs
from eosframework.processing.task import Task, producer_groups
from eosframework.processing.transaction.commit_interval import CommitInterval
from eosframework.processing.transaction.producer_group import ProducerGroup
from eosframework.processing.transaction.recovery import Recovery
from eosframework.processing.worker_plan import WorkerCounts, WorkerOptions

LONGEST_OVERLAP_SECONDS = 0.25
"""A round that takes longer is joined and waited for: a broker is slow, and records fetched for
the round's tasks accumulate."""


class CommitRounds:
    """Commits a worker's tasks.

    Args:
        on_finished: called after each round with its tasks and its duration in seconds.
    """

    def __init__(
        self,
        outputs: TransactionalOutputs,
        recovery: Recovery,
        options: WorkerOptions,
        counts: WorkerCounts,
        clock: Callable[[], float],
        on_finished: Callable[[Sequence[Task], float], None],
    ) -> None:
        self._outputs = outputs
        self._recovery = recovery
        self._counts = counts
        self._clock = clock
        self._on_finished = on_finished
        self._intervals = [
            CommitInterval(
                options.commit_interval_seconds, options.transaction_timeout_seconds / 3, clock
            )
            for _ in range(options.commit_turns)
        ]
        self._intervals_in_round: list[CommitInterval] = []
        self._round: CommitRound | None = None
        self._began_at = 0.0
        self._has_backlog = False
        self._in_round: list[ProducerGroup[Task]] = []
        self._events = structlog.get_logger("eosframework.worker")

    @property
    def is_under_way(self) -> bool:
        """True while a round is in progress."""
        return self._round is not None

    def holds(self, task: Task) -> bool:
        """Return whether a task is in the current round."""
        return task.group in self._in_round

    def remaining_seconds(self) -> float:
        """Return the time until the next round; 0 when it is due."""
        return min(interval.remaining_seconds() for interval in self._intervals)

    def turn(self, tasks: Sequence[Task], *, backlog: bool) -> None:
        """Finish the round if its results are there, and begin the due ones, one after the other.

        Args:
            tasks: all tasks of the worker.
            backlog: whether the tasks outside of the round have work.

        Raises:
            RecordFailed: a task is stopped at a record; the records before it are committed.
            RunError: as `settle`.
        """
        self._has_backlog = backlog
        groups = producer_groups(tasks)
        turns = [
            (interval, groups[number :: len(self._intervals)])
            for number, interval in enumerate(self._intervals)
        ]
        for interval, own in sorted(turns, key=lambda turn: turn[0].due):
            self._finish_if_done()
            wanted = interval.is_due() or any(
                task.wants_commit for group in own for task in group.tasks
            )
            if not wanted or self._round is not None:
                continue
            if backlog:
                self._begin(own, [interval])
            else:
                self._begin(groups, self._intervals)
        self._finish_if_done()
        if self._round is not None and self._clock() - self._began_at > LONGEST_OVERLAP_SECONDS:
            self.settle(tasks)
        self._raise_failure(tasks)

    def commit(self, tasks: Sequence[Task], within_seconds: float | None = None) -> None:
        """Commit the open transactions of tasks, and wait for that; raises as `turn`.

        Tasks that share a producer with one of these commit with it.
        """
        self._finish()
        self._begin(producer_groups(tasks), self._intervals, within_seconds)
        self._finish()
        self._raise_failure(tasks)

    def settle(self, tasks: Iterable[Task]) -> None:
        """Let all other tasks join the current round, if there is one, and finish it.

        Raises:
            RunError: no retry can succeed until an operator fixes the cause.
            RecordFailed: the broker rejects a record's output and its dead letter.
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        if self._round is not None:
            self._begin(
                [b for b in producer_groups(tasks) if b not in self._in_round], self._intervals
            )
            self._finish()

    def _finish(self) -> None:
        """Wait for the results, and pass each to its producer group (steps 5 to 7)."""
        if self._round is None:
            return
        round_, ready = self._round, self._in_round
        results = round_.results()
        self._round, self._in_round = None, []
        # The replacement of a producer is no measure of the next round.
        took_seconds = 0.0 if any(result.recycled for result in results) else round_.took_seconds
        for interval in self._intervals_in_round:
            if stretched := interval.round_took(took_seconds, backlog=self._has_backlog):
                self._events.warning("commit_interval_stretched", seconds=round(stretched, 3))
        outcomes = list(zip(ready, results, strict=True))
        failures: list[Exception] = []
        # Every group gets its result, whatever the result of another causes. Otherwise it would
        # take its transaction for open, and commit it again with the worker's last commit.
        for group, result in outcomes:
            self._counts.recycles += result.recycled
            try:
                self._apply(group, result.error)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        self._recovery.recycled([b for b, r in outcomes if r.error is None and r.recycled])
        self._on_finished([t for b in ready for t in b.tasks], round_.took_seconds)

    def _apply(self, group: ProducerGroup[Task], error: TransactionError | None) -> None:
        if error is not None:
            self._recovery.failed(group, error)
            return
        self._counts.commits += 1
        # If a store rejects the changes, the worker's last commit leaves out the whole group.
        with group.whole():
            group.committed()

    def _raise_failure(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.failure is not None and not task.has_open_progress:
                raise task.failure

    def _finish_if_done(self) -> None:
        if self._round is not None and self._round.is_done():
            self._finish()

    def _begin(
        self,
        groups: Sequence[ProducerGroup[Task]],
        intervals: Sequence[CommitInterval],
        within_seconds: float | None = None,
    ) -> None:
        """Collect the parts of the producer groups, and begin the round."""
        ready: list[ProducerGroup[Task]] = []
        commits: list[Commit] = []
        try:
            for group in groups:
                if not group.has_open_progress:
                    continue
                try:
                    commits.append(group.commit())
                    ready.append(group)
                except TransactionError as error:
                    self._recovery.failed(group, error)
        finally:
            # Also if a group ends the worker: the results and changes of the others are in their
            # transactions by now, and a second collection would add them twice.
            self._start(ready, commits, intervals, within_seconds)

    def _start(
        self,
        ready: Sequence[ProducerGroup[Task]],
        commits: Sequence[Commit],
        intervals: Sequence[CommitInterval],
        within_seconds: float | None,
    ) -> None:
        if self._round is not None:
            self._round.join(commits)
        elif commits:
            self._round = self._outputs.begin_commit(commits, within_seconds)
            self._began_at = self._clock()
        else:
            for interval in intervals:
                interval.round_took(0.0, backlog=self._has_backlog)
            return
        self._intervals_in_round = [*intervals]
        self._in_round += ready
