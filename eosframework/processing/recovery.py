"""What a worker does after a call that did not succeed (step 7 of a transaction).

    abortable     R1 abort and recycle         ─┐
    unknown       R1 recycle only              ─┼─▶ R2 read the stable committed offsets
    fenced        F1 poll for two heartbeats   ─┘   R3 rewind to them and go on
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

import structlog

from eosframework.errors import (
    DataRejected,
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
)
from eosframework.processing.ports import InputLog, TransactionalOutputs
from eosframework.processing.task import Task, TaskState
from eosframework.records import Position
from eosframework.txnid import TransactionalId

FENCES_IN_A_ROW = 3
"""A task fenced this often without a commit in between has a rival with the same identity."""

BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 5.0


class Counts(Protocol):
    """Where recoveries are counted."""

    aborts: int
    recycles: int
    fences: int


@dataclass(slots=True)
class _Case:
    """A task under recovery.

    Args:
        abort: the transaction is known to be undecided, so it can be aborted quickly; an
            unknown one is left to the re-init.
        not_before: clock time of the next attempt.
    """

    abort: bool
    not_before: float
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
            moved = [
                str(position.topic_partition)
                for position in positions
                if position.offset != task.committed_offset(position.topic_partition)
            ]
            if moved:
                self.failed(
                    task,
                    TaskFenced(
                        f"transactional.id {task.identity}: the committed offsets of "
                        f"{', '.join(moved)} were moved by another worker"
                    ),
                )

    def turn(self, tasks: Sequence[Task]) -> None:
        """Bring back the tasks whose time has come; one failed attempt costs one wait."""
        if not self._cases:
            return
        known = {task.identity for task in tasks}
        for gone in [identity for identity in self._cases if identity not in known]:
            del self._cases[gone]
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
                self._take_out(task, _Case(abort=False, not_before=self._clock()))
            case TaskFenced():
                self._fenced(task, error)
            case TransactionFatal():
                raise RunError(str(error)) from error
            case _:
                raise error

    def _abort(self, task: Task, error: TransactionError, event: str) -> None:
        self._counts.aborts += 1
        task.aborts_in_a_row += 1
        self._event(event, task, error)
        wait_seconds = _backoff_seconds(task.aborts_in_a_row - 1)
        self._take_out(task, _Case(abort=True, not_before=self._clock() + wait_seconds))

    def _fenced(self, task: Task, error: TransactionError) -> None:
        self._counts.fences += 1
        task.fences_in_a_row += 1
        self._event(
            "task_fenced", task, error, transaction_age_seconds=round(task.age_seconds(), 1)
        )
        if task.fences_in_a_row >= FENCES_IN_A_ROW:
            raise InstanceFenced(
                f"transactional.id {task.identity} was taken over {FENCES_IN_A_ROW} times in a "
                f"row without a rebalance: another process uses the same application name. "
                f"Stop it, or give one of them another name"
            ) from error
        if task.state is not TaskState.FENCED:
            self._take_out(task, _Case(False, 0), TaskState.FENCED)
        self._cases[task.identity] = _Case(
            abort=False, not_before=self._clock() + 2 * self._heartbeat_seconds
        )

    def _take_out(self, task: Task, case: _Case, state: TaskState = TaskState.RECOVERING) -> None:
        if task.state is not state:
            task.enter(state)
        self._cases[task.identity] = case
        self._log.pause(task.partitions)

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
            del self._cases[task.identity]
            self._back_in_service(task, positions)

    def _take_again(self, due: Sequence[Task]) -> Iterator[tuple[Task, TransactionError | None]]:
        """Take the ids of the tasks again (R1), and say of each why it could not be had."""
        aborts = [task for task in due if self._cases[task.identity].abort]
        others = [task for task in due if not self._cases[task.identity].abort]
        for tasks, end in ((aborts, self._outputs.abort), (others, self._outputs.recycle)):
            if tasks:
                yield from zip(tasks, end([task.output for task in tasks]), strict=True)

    def _failed_again(self, task: Task, error: TransactionError) -> None:
        match error:
            case TaskFenced():
                self._fenced(task, error)
            case TransactionFatal():
                raise RunError(str(error)) from error
            case _:
                case = self._cases[task.identity]
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

    def _back_in_service(self, task: Task, positions: Sequence[Position]) -> None:
        task.start_at(positions)
        self._log.seek(positions)
        task.enter(TaskState.RUNNING)
        self._log.resume(task.partitions)
        self._events.info(
            "task_recovered",
            transactional_id=str(task.identity),
            offsets={str(p.topic_partition): p.offset for p in positions},
        )

    def _event(self, name: str, task: Task, error: TransactionError, **facts: object) -> None:
        self._events.warning(name, transactional_id=str(task.identity), error=str(error), **facts)


def _backoff_seconds(attempts: int) -> float:
    if attempts == 0:
        return 0.0
    return min(BACKOFF_SECONDS * 2**attempts, LONGEST_BACKOFF_SECONDS)
