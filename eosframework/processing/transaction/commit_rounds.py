"""Rounds of commits: which tasks commit together, when, and what goes on meanwhile.

A commit is mostly waiting: until the brokers have stored what is under way, and for two answers.
So a round is begun on the main thread, waited for by others, and finished on the main thread:

    begin    each task says its part (steps 3 and 4); the calls are made on other threads, one
             for each producer
    ...      the main thread fetches, and runs the tasks that are not in the round
    finish   each task hears what became of its transaction (steps 5 to 7)

With two turns one half of the tasks works while the other half commits; where there is no work
waiting, all of them commit at once. A task in a round runs nothing, because its producer is in the
commit; what is fetched for it waits.

There is one round at a time. One that lasts is waited for, and all others join it before: a broker
that does not answer one task keeps no other from committing in time. Whatever needs the producers
of tasks, or lets tasks go, waits for it first. So does a rebalance, in its callback:

    A's round is under way; the worker fetches; the group takes A's partition away;
    were A released now, its producer would be closed inside its commit
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import structlog

from eosframework.errors import TransactionError
from eosframework.processing.plan import WorkerCounts, WorkerOptions
from eosframework.processing.ports import Commit, CommitRound, TransactionalOutputs
from eosframework.processing.task import Task
from eosframework.processing.transaction.commit_interval import CommitPace
from eosframework.processing.transaction.producer_group import Bundle, bundles_of
from eosframework.processing.transaction.recovery import Recovery

LONGEST_OVERLAP_SECONDS = 0.25
"""A round that takes longer is joined and waited for: something is wrong with a broker, and what is
fetched for its tasks meanwhile piles up."""


class CommitRounds:
    """Commits a worker's tasks.

    Args:
        on_finished: told which tasks were in a round, after they heard of it, and how long it took.
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
        self._paces = [
            CommitPace(
                options.commit_interval_seconds, options.transaction_timeout_seconds / 3, clock
            )
            for _ in range(options.commit_turns)
        ]
        self._paces_in_round: list[CommitPace] = []
        self._round: CommitRound | None = None
        self._began_at = 0.0
        self._is_behind = False
        self._in_round: list[Bundle] = []
        self._events = structlog.get_logger("eosframework.worker")

    @property
    def is_under_way(self) -> bool:
        """Whether a round was begun and is not finished."""
        return self._round is not None

    def holds(self, task: Task) -> bool:
        """Tell whether a task is in the round that is under way."""
        return task.bundle in self._in_round

    def remaining_seconds(self) -> float:
        """Return how long until the next round; 0 when it is due."""
        return min(pace.remaining_seconds() for pace in self._paces)

    def turn(self, tasks: Sequence[Task], *, behind: bool) -> None:
        """Finish the round if that takes no waiting, and begin what is due, one after the other.

        Args:
            tasks: all of the worker's.
            behind: whether there is work for those that are not in the round.

        Raises:
            RecordFailed: a task stands before a record; what it had before that is committed.
            RunError: as `settle`.
        """
        self._is_behind = behind
        bundles = bundles_of(tasks)
        turns = [
            (pace, bundles[number :: len(self._paces)]) for number, pace in enumerate(self._paces)
        ]
        for pace, own in sorted(turns, key=lambda turn: turn[0].due):
            self._finish_if_done()
            wanted = pace.is_due() or any(
                task.wants_commit for bundle in own for task in bundle.tasks
            )
            if not wanted or self._round is not None:
                continue
            if behind:
                self._begin(own, [pace])
            else:
                self._begin(bundles, self._paces)
        self._finish_if_done()
        if self._round is not None and self._clock() - self._began_at > LONGEST_OVERLAP_SECONDS:
            self.settle(tasks)
        self._raise_failure(tasks)

    def commit(self, tasks: Sequence[Task], within_seconds: float | None = None) -> None:
        """Commit every task that has something open, and wait for that; raises as `turn`.

        Tasks that share a producer with one of these commit with it.
        """
        self._finish()
        self._begin(bundles_of(tasks), self._paces, within_seconds)
        self._finish()
        self._raise_failure(tasks)

    def settle(self, tasks: Iterable[Task]) -> None:
        """If a round is under way, let all other tasks join it, and finish it.

        Raises:
            RunError: nothing can succeed here until somebody mends the cause.
            RecordFailed: the broker refuses a record's output and its dead letter.
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        if self._round is not None:
            self._begin([b for b in bundles_of(tasks) if b not in self._in_round], self._paces)
            self._finish()

    def _finish(self) -> None:
        """Wait for the answers, and tell each task what became of it (steps 5 to 7).

        Every task hears, whatever the news of another lead to: one that did not would take its
        transaction for open, and say its part in the worker's last commit once more.
        """
        if self._round is None:
            return
        round_, ready = self._round, self._in_round
        results = round_.results()
        self._round, self._in_round = None, []
        # Replacing producers is no measure of the next round.
        took_seconds = 0.0 if any(result.recycled for result in results) else round_.took_seconds
        for pace in self._paces_in_round:
            if stretched := pace.round_took(took_seconds, behind=self._is_behind):
                self._events.warning("commit_interval_stretched", seconds=round(stretched, 3))
        told = list(zip(ready, results, strict=True))
        failures: list[Exception] = []
        for bundle, result in told:
            self._counts.recycles += result.recycled
            try:
                self._tell(bundle, result.error)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        self._recovery.recycled([b for b, r in told if r.error is None and r.recycled])
        self._on_finished([t for b in ready for t in b.tasks], round_.took_seconds)

    def _tell(self, bundle: Bundle, error: TransactionError | None) -> None:
        if error is not None:
            self._recovery.failed(bundle, error)
            return
        self._counts.commits += 1
        # Where a store does not take it, the last commit leaves out all that share the producer.
        with bundle.whole():
            bundle.committed()

    def _raise_failure(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.failure is not None and not task.has_open_progress:
                raise task.failure

    def _finish_if_done(self) -> None:
        if self._round is not None and self._round.is_done():
            self._finish()

    def _begin(
        self,
        bundles: Sequence[Bundle],
        paces: Sequence[CommitPace],
        within_seconds: float | None = None,
    ) -> None:
        """Let each say its part, and begin the round.

        It begins with those that have, also if one that cannot ends the worker. Their results and
        changes are in their transactions by then; asked again, they would say them twice.
        """
        ready: list[Bundle] = []
        commits: list[Commit] = []
        try:
            for bundle in bundles:
                if not bundle.has_open_progress:
                    continue
                try:
                    commits.append(bundle.commit())
                    ready.append(bundle)
                except TransactionError as error:
                    self._recovery.failed(bundle, error)
        finally:
            self._start(ready, commits, paces, within_seconds)

    def _start(
        self,
        ready: Sequence[Bundle],
        commits: Sequence[Commit],
        paces: Sequence[CommitPace],
        within_seconds: float | None,
    ) -> None:
        if self._round is not None:
            self._round.join(commits)
        elif commits:
            self._round = self._outputs.begin_commit(commits, within_seconds)
            self._began_at = self._clock()
        else:
            for pace in paces:
                pace.round_took(0.0, behind=self._is_behind)
            return
        self._paces_in_round = [*paces]
        self._in_round += ready
