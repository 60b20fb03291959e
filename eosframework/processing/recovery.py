"""What a worker does after a call that did not succeed (step 7 of a transaction).

    abortable     R1 abort and recycle         ─┐
    unknown       R1 recycle only              ─┼─▶ R2 read the stable committed offsets
    fenced        F1 poll for two heartbeats   ─┘   R3 rewind to them; the worker goes on when
                                                       stores are up to date
                  F2 still the owner: recycle
    suspect       recycled already; R2: another's offsets are a fence, else go on

The tasks that are due go through R1 together, and through R2 with one question.

After R1 no frame of the old producer can take effect, so R2 reads what is decided for good: if
an unknown commit happened, the offsets are behind it, otherwise before it. Nothing is guessed.

A fenced task was either overtaken by a successor or expired by the broker; the error is the
same. Re-initing at once would fence a rightful successor, who would do the same in return. So
the worker first stays a member of the group for two heartbeats: a successor exists only after a
rebalance, and that is seen by then as a revoked or lost partition, which closes the task. The
next `send_offsets` with the membership of its batch is the last check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol
from weakref import WeakKeyDictionary

import structlog

from eosframework.errors import (
    DataRejected,
    OutcomeUnknown,
    Retriable,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
)
from eosframework.processing.fences import FenceHistory, FenceKind, kind_of
from eosframework.processing.ports import InputLog, TransactionalOutputs
from eosframework.processing.progress import Outcome
from eosframework.processing.states import TaskState
from eosframework.processing.task import Task
from eosframework.records import Position
from eosframework.txnid import TransactionalId

BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 5.0


class Counts(Protocol):
    """Where recoveries are counted."""

    aborts: int
    recycles: int
    fences: int
    unknown_outcomes: int


@dataclass(slots=True)
class _Case:
    """A task under recovery.

    Args:
        task: after a rebalance another one may have its id.
        began_at: clock time at which its transaction began.
        not_before: clock time of the next attempt.
        abort: the transaction is known to be undecided, so it can be aborted quickly; an
            unknown one is left to the re-init.
        unknown: what became of the transaction is to be told.
        fence: why the task was fenced, if it was.
    """

    task: Task
    began_at: float
    not_before: float
    abort: bool = False
    unknown: bool = False
    fence: FenceKind | None = None
    attempts: int = 0


class Recovery:
    """Takes tasks out of service after a failure and brings them back."""

    def __init__(
        self,
        log: InputLog,
        outputs: TransactionalOutputs,
        heartbeat_interval_seconds: float,
        counts: Counts,
        clock: Callable[[], float],
    ) -> None:
        self._log = log
        self._outputs = outputs
        self._heartbeat_seconds = heartbeat_interval_seconds
        self._counts = counts
        self._clock = clock
        self._cases: dict[TransactionalId, _Case] = {}
        self._fences: WeakKeyDictionary[Task, FenceHistory] = WeakKeyDictionary()
        self._events = structlog.get_logger("eosframework.recovery")

    def failed(self, task: Task, error: TransactionError) -> None:
        """Decide what a failed call means and take the task out of service.

        Raises:
            RunError: nothing can succeed here until somebody mends the cause.
            RecordFailed: the broker refuses a record's output and its dead letter.
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        try:
            self._decide(task, error)
        finally:
            task.drop()

    def recycled(self, tasks: Sequence[Task]) -> None:
        """Read the stable committed offsets after suspect producers were replaced (R2).

        Their commits were confirmed, but the worker may have stood still before the replacement:

            A commits and is found suspect; A stands still; its partition moves; B commits;
            A goes on, and taking the id again fences B, the rightful owner

        Then A must not run a record from its old position. That the group would refuse its
        offsets is the second fence, not the first.

        Raises:
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        if not tasks:
            return
        try:
            settled = self._settled(tasks)
        except TransactionError as error:
            for task in tasks:
                self.failed(task, error)
            return
        for task, positions in zip(tasks, settled, strict=True):
            if task.outcome(positions) is not Outcome.NOT_COMMITTED:
                self.failed(task, _overtaken(task, positions))

    def is_due(self) -> bool:
        """Tell whether there is a task whose time to come back has come."""
        now = self._clock()
        return any(now >= case.not_before for case in self._cases.values())

    def turn(self, tasks: Sequence[Task]) -> None:
        """Bring back the tasks whose time has come; one failed attempt costs one wait."""
        if not self._cases:
            return
        self._forget_released(tasks)
        now = self._clock()
        due = [
            task
            for task in tasks
            if task.identity in self._cases and now >= self._cases[task.identity].not_before
        ]
        if due:
            self._attempt(due)

    def _decide(self, task: Task, error: TransactionError) -> None:
        match error:
            case DataRejected():
                task.reject(error)
                self._abort(task, error, "output_rejected")
            case TransactionAborted():
                self._abort(task, error, "transaction_aborted")
            case OutcomeUnknown() | Retriable():
                self._event("outcome_unknown", task, error)
                self._take_out(self._case(task, unknown=True))
            case TaskFenced():
                self._fenced(self._case(task), error)
            case TransactionFatal():
                raise RunError(str(error)) from error
            case _:
                raise error

    def _abort(self, task: Task, error: TransactionError, event: str) -> None:
        self._counts.aborts += 1
        task.aborts_in_a_row += 1
        self._event(event, task, error)
        wait_seconds = _backoff_seconds(task.aborts_in_a_row - 1)
        self._take_out(self._case(task, wait_seconds, abort=True))

    def _fenced(self, case: _Case, error: TransactionError) -> None:
        """Keep the task out for two heartbeats, in which a successor would show (F1)."""
        task, now = case.task, self._clock()
        age_seconds = now - case.began_at
        kind = kind_of(task, error, age_seconds)
        self._counts.fences += 1
        self._event("task_fenced", task, error, transaction_age_seconds=round(age_seconds, 1))
        history = self._fences.setdefault(task, FenceHistory(self._heartbeat_seconds))
        history.add(task, kind, now)
        fenced = self._case(task, 2 * self._heartbeat_seconds)
        fenced.fence = kind
        self._take_out(fenced, TaskState.FENCED)

    def _case(
        self, task: Task, wait_seconds: float = 0, *, abort: bool = False, unknown: bool = False
    ) -> _Case:
        now = self._clock()
        return _Case(task, now - task.age_seconds(), now + wait_seconds, abort, unknown)

    def _take_out(self, case: _Case, state: TaskState = TaskState.RECOVERING) -> None:
        if case.task.state is not state:
            case.task.enter(state)
        self._cases[case.task.identity] = case
        self._log.pause(case.task.partitions)

    def _forget_released(self, tasks: Sequence[Task]) -> None:
        """Drop the cases of tasks whose partitions went elsewhere, to a successor perhaps."""
        here = {task.identity: task for task in tasks}
        for identity, case in list(self._cases.items()):
            if here.get(identity) is not case.task:
                del self._cases[identity]
                if case.fence is not None:
                    self._events.warning("successor_took_over", transactional_id=str(identity))

    def _attempt(self, due: Sequence[Task]) -> None:
        for task in due:
            if task.state is TaskState.FENCED:
                task.enter(TaskState.RECOVERING)
        own: list[Task] = []
        for task, error in self._take_again(due):
            if error is None:
                own.append(task)
            else:
                self._failed_again(task, error)
        if not own:
            return
        try:
            settled = self._settled(own)
        except TransactionError as error:
            for task in own:
                self._failed_again(task, error)
            return
        for task, positions in zip(own, settled, strict=True):
            self._counts.recycles += 1
            self._resolve(self._cases.pop(task.identity), positions)

    def _take_again(self, due: Sequence[Task]) -> Iterator[tuple[Task, TransactionError | None]]:
        """Take the ids of the tasks again (R1), and say of each why it could not be had."""
        aborts = [task for task in due if self._cases[task.identity].abort]
        others = [task for task in due if not self._cases[task.identity].abort]
        for tasks, end in ((aborts, self._outputs.abort), (others, self._outputs.recycle)):
            if tasks:
                yield from zip(tasks, end([task.output for task in tasks]), strict=True)

    def _failed_again(self, task: Task, error: TransactionError) -> None:
        case = self._cases[task.identity]
        match error:
            case TaskFenced():
                self._fenced(case, error)
            case TransactionFatal():
                raise RunError(str(error)) from error
            case _:
                case.abort = False
                case.attempts += 1
                case.not_before = self._clock() + _backoff_seconds(case.attempts)
                self._event("recovery_retried", task, error, attempts=case.attempts)

    def _settled(self, tasks: Sequence[Task]) -> list[list[Position]]:
        """Read the stable committed positions of each task (R2); before the first, the start."""
        committed = iter(self._log.committed([p for task in tasks for p in task.partitions]))
        return [
            [
                position
                if position.offset is not None
                else replace(position, offset=task.committed_offset(position.topic_partition))
                for position in islice(committed, len(task.partitions))
            ]
            for task in tasks
        ]

    def _resolve(self, case: _Case, positions: Sequence[Position]) -> None:
        """Say what became of the transaction, and go on; unless another worker goes on (R3)."""
        task = case.task
        if case.unknown:
            became = task.outcome(positions)
            self._counts.unknown_outcomes += 1
            self._events.info(
                "outcome_resolved", transactional_id=str(task.identity), outcome=became.value
            )
            if became is Outcome.OVERTAKEN:
                self._fenced(case, _overtaken(task, positions))
                return
            if became is Outcome.COMMITTED:
                task.took_effect()
        if case.fence is not None:
            self._events.warning(case.fence.value, transactional_id=str(task.identity))
        self._back_in_service(task, positions)

    def _back_in_service(self, task: Task, positions: Sequence[Position]) -> None:
        task.start_at(positions)
        self._log.seek(positions)
        task.enter(TaskState.ASSIGNED)
        self._events.info(
            "task_recovered",
            transactional_id=str(task.identity),
            offsets={str(p.topic_partition): p.offset for p in positions},
        )

    def _event(self, name: str, task: Task, error: TransactionError, **facts: object) -> None:
        self._events.warning(name, transactional_id=str(task.identity), error=str(error), **facts)


def _overtaken(task: Task, positions: Sequence[Position]) -> TaskFenced:
    return TaskFenced(
        f"transactional.id {task.identity}: the committed offsets of "
        f"{', '.join(str(position.topic_partition) for position in positions)} were moved by "
        f"another worker"
    )


def _backoff_seconds(attempts: int) -> float:
    if attempts == 0:
        return 0.0
    return min(BACKOFF_SECONDS * 2**attempts, LONGEST_BACKOFF_SECONDS)
