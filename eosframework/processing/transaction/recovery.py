"""Recovery from a failed call (step 7 of a transaction).

    abortable     R1 abort and recycle         ─┐
    unknown       R1 recycle only              ─┼─▶ R2 read the stable committed offsets
    fenced        F1 poll for two heartbeats   ─┘   R3 rewind to them; the task resumes when its
                                                       stores are up to date
                  F2 still the owner: recycle
    suspect       recycled already; R2: another worker's offsets are a fence, else resume

A producer fails together with all tasks that share it. Those that are due go through R1 together,
and through R2 with one request.

After R1 no request of the old producer can take effect, so R2 reads a final state: if an unknown
commit happened, the offsets are after it, otherwise before it. Nothing is guessed.

A fenced producer was either replaced by a successor or expired by the broker. An immediate re-init
would fence a rightful successor, which would do the same in return. So the worker first stays a
member of the group for two heartbeats: a successor exists only after a rebalance, and by then that
shows as a revoked or lost partition, which closes its tasks. The next `send_offsets` with the
membership of its batch is the last check.

The brokers report `_FENCED` in both cases (KIP-588 separates them; librdkafka does not implement
it). The worker knows more: a transaction younger than its timeout cannot have expired. Such a fence
without a rebalance means that another process uses the id. It may have stopped since, so one fence
is no reason to end; several in a short time are: two rivals would fence each other after a few
commits, for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import structlog

from eosframework.errors import (
    DataRejected,
    IdExpired,
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
    TransactionTooLong,
)
from eosframework.processing.ports import InputLog, TransactionalOutputs
from eosframework.processing.task import Task
from eosframework.processing.task_states import TaskState
from eosframework.processing.transaction.offsets import Outcome
from eosframework.processing.transaction.producer_group import ProducerGroup
from eosframework.records import Position

FENCES_IN_A_ROW = 3
"""A producer fenced this often without a commit in between has a rival with the same identity."""

RIVAL_FENCES = 3
RIVAL_HEARTBEATS = 30
"""This many fences that cannot be expiry, within this many heartbeat intervals, show a rival,
with or without commits in between. Two rivals wait two heartbeats each, so a worker is fenced
every four."""


class FenceKind(StrEnum):
    """The cause of a fence, as far as the worker can know; the log event if it resumes."""

    ID_EXPIRED = "transactional_id_expired"
    TRANSACTION_EXPIRED = "transaction_expired"
    ANOTHER = "fenced_while_owner"
    """Another process took the id without being assigned the partition."""


def kind_of(group: ProducerGroup[Any], error: TransactionError, age_seconds: float) -> FenceKind:
    """Return the cause of a fence `age_seconds` after the transaction began."""
    if isinstance(error, IdExpired):
        return FenceKind.ID_EXPIRED
    if age_seconds >= group.transaction_timeout_seconds:
        return FenceKind.TRANSACTION_EXPIRED
    return FenceKind.ANOTHER


class FenceHistory:
    """The fences of a producer since its partitions were assigned.

    Args:
        heartbeat_seconds: the heartbeat interval.
    """

    def __init__(self, heartbeat_seconds: float) -> None:
        self._window_seconds = RIVAL_HEARTBEATS * heartbeat_seconds
        self._rival_fences: list[float] = []

    def add(self, group: ProducerGroup[Any], kind: FenceKind, now: float) -> None:
        """Count a fence; expiry, however frequent, does not show a rival.

        Raises:
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        if kind is not FenceKind.ANOTHER:
            return
        group.fences_in_a_row += 1
        since = now - self._window_seconds
        self._rival_fences = [at for at in self._rival_fences if at > since] + [now]
        rivals = len(self._rival_fences)
        if group.fences_in_a_row >= FENCES_IN_A_ROW or rivals >= RIVAL_FENCES:
            count = max(group.fences_in_a_row, rivals)
            raise InstanceFenced(
                f"transactional.id {group.transactional_id} was taken over {count} times without "
                f"a rebalance: another process uses the same application name. Stop it, or give "
                f"one of them another name"
            )


Settled = Mapping[Task, Sequence[Position]]
"""Stable committed positions of the source partitions of each task."""

BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 5.0


class Counts(Protocol):
    """The counters of recoveries."""

    aborts: int
    recycles: int
    fences: int
    unknown_outcomes: int


@dataclass(slots=True)
class _Case:
    """A producer in recovery.

    Args:
        group: the producer group; after a rebalance another one may have its id.
        began_at: clock time at which its transaction began.
        not_before: clock time of the next attempt.
        abort: the transaction is known to be undecided, so it can be aborted quickly; an unknown
            one is left to the re-init.
        unknown: the outcome of the transaction must be read.
        fence: the cause of its fence, if it was fenced.
    """

    group: ProducerGroup[Task]
    began_at: float
    not_before: float
    abort: bool = False
    unknown: bool = False
    fence: FenceKind | None = None
    attempts: int = 0


class Recovery:
    """Takes tasks out of service after a failure and resumes them."""

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
        self._cases: dict[ProducerGroup[Task], _Case] = {}
        self._fences: WeakKeyDictionary[ProducerGroup[Task], FenceHistory] = WeakKeyDictionary()
        self._events = structlog.get_logger("eosframework.recovery")

    def failed(self, group: ProducerGroup[Task], error: TransactionError) -> None:
        """Decide the consequence of a failed call and take the producer's tasks out of service.

        Raises:
            RunError: no retry can succeed until an operator fixes the cause.
            RecordFailed: the broker rejects a record's output and its dead letter.
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        try:
            self._decide(group, error)
        finally:
            group.drop()

    def recycled(self, groups: Sequence[ProducerGroup[Task]]) -> None:
        """Read the stable committed offsets after suspect producers were replaced (R2).

        Their commits were confirmed, but another worker may have committed before the replacement.

        Raises:
            InstanceFenced: a rival with the same identity keeps fencing this worker.
        """
        # 1. A commits and is found suspect; A is suspended; its partition moves; B commits
        # 2. A resumes, and its re-init fences B, the rightful owner
        # 3. A must not run a record from its old position. That the group would reject its
        #    offsets is the second fence, not the first.
        if not groups:
            return
        try:
            settled = self._settled(groups)
        except TransactionError as error:
            for group in groups:
                self.failed(group, error)
            return
        for group in groups:
            moved = [
                task
                for task in group.tasks
                if task.outcome(settled[task]) is not Outcome.NOT_COMMITTED
            ]
            if moved:
                self.failed(group, _overtaken(group, moved))

    def turn(self, groups: Sequence[ProducerGroup[Task]], now: float) -> None:
        """Recover the due producers; one failed attempt costs one wait.

        Args:
            groups: all producer groups of the worker.
            now: clock time by which they are due.
        """
        if not self._cases:
            return
        self._forget_released(groups)
        due = [b for b in groups if b in self._cases and now >= self._cases[b].not_before]
        if due:
            self._attempt(due)

    def _decide(self, group: ProducerGroup[Task], error: TransactionError) -> None:
        match error:
            case DataRejected():
                group.reject(error)
                self._abort(group, error, "output_rejected")
            case TransactionTooLong():
                self._abort(group, error, "transaction_too_long")
            case TransactionAborted():
                group.aborts_in_a_row += 1
                wait_seconds = _backoff_seconds(group.aborts_in_a_row - 1)
                self._abort(group, error, "transaction_aborted", wait_seconds)
            case OutcomeUnknown() | Retriable():
                self._event("outcome_unknown", group, error)
                self._take_out(self._case(group, unknown=True))
            case TaskFenced():
                self._fenced(self._case(group), error)
            case TransactionFatal():
                raise RunError(str(error)) from error
            case _:
                raise error

    def _abort(
        self,
        group: ProducerGroup[Task],
        error: TransactionError,
        event: str,
        wait_seconds: float = 0,
    ) -> None:
        """Abort at once, unless only time can help: the next attempt is a smaller transaction."""
        self._counts.aborts += 1
        self._event(event, group, error)
        self._take_out(self._case(group, wait_seconds, abort=True))

    def _fenced(self, case: _Case, error: TransactionError) -> None:
        """Stop the producer for two heartbeats, in which a successor would show (F1)."""
        group, now = case.group, self._clock()
        age_seconds = now - case.began_at
        kind = kind_of(group, error, age_seconds)
        self._counts.fences += 1
        self._event("task_fenced", group, error, transaction_age_seconds=round(age_seconds, 1))
        history = self._fences.setdefault(group, FenceHistory(self._heartbeat_seconds))
        history.add(group, kind, now)
        fenced = self._case(group, 2 * self._heartbeat_seconds)
        fenced.fence = kind
        self._take_out(fenced, TaskState.FENCED)

    def _case(
        self,
        group: ProducerGroup[Task],
        wait_seconds: float = 0,
        *,
        abort: bool = False,
        unknown: bool = False,
    ) -> _Case:
        now = self._clock()
        return _Case(group, now - group.age_seconds(), now + wait_seconds, abort, unknown)

    def _take_out(self, case: _Case, state: TaskState = TaskState.RECOVERING) -> None:
        if case.group.state is not state:
            case.group.enter(state)
        self._cases[case.group] = case
        self._log.pause(case.group.partitions)

    def _forget_released(self, groups: Sequence[ProducerGroup[Task]]) -> None:
        """Drop the cases of released producers; a successor may have them."""
        for group, case in list(self._cases.items()):
            if group not in groups:
                del self._cases[group]
                if case.fence is not None:
                    self._events.warning(
                        "successor_took_over", transactional_id=group.transactional_id
                    )

    def _attempt(self, due: Sequence[ProducerGroup[Task]]) -> None:
        for group in due:
            if group.state is TaskState.FENCED:
                group.enter(TaskState.RECOVERING)
        own: list[ProducerGroup[Task]] = []
        for group, error in self._reinit(due):
            if error is None:
                own.append(group)
            else:
                self._retry_later(group, error)
        if not own:
            return
        try:
            settled = self._settled(own)
        except TransactionError as error:
            for group in own:
                self._retry_later(group, error)
            return
        for group in own:
            self._counts.recycles += 1
            self._resolve(self._cases.pop(group), settled)

    def _reinit(
        self, due: Sequence[ProducerGroup[Task]]
    ) -> Iterator[tuple[ProducerGroup[Task], TransactionError | None]]:
        """Re-init the ids (R1), and yield for each the error that prevented it."""
        aborts = [group for group in due if self._cases[group].abort]
        others = [group for group in due if not self._cases[group].abort]
        for groups, end in ((aborts, self._outputs.abort), (others, self._outputs.recycle)):
            if groups:
                yield from zip(groups, end([b.output for b in groups]), strict=True)

    def _retry_later(self, group: ProducerGroup[Task], error: TransactionError) -> None:
        case = self._cases[group]
        match error:
            case TaskFenced():
                self._fenced(case, error)
            case TransactionFatal():
                raise RunError(str(error)) from error
            case _:
                case.abort = False
                case.attempts += 1
                case.not_before = self._clock() + _backoff_seconds(case.attempts)
                self._event("recovery_retried", group, error, attempts=case.attempts)

    def _settled(self, groups: Sequence[ProducerGroup[Task]]) -> Settled:
        """Read the stable committed positions of each task (R2); without a commit, its start."""
        committed = iter(self._log.committed([p for b in groups for p in b.partitions]))
        return {
            task: [
                position
                if position.offset is not None
                else replace(position, offset=task.committed_offset(position.topic_partition))
                for position in islice(committed, len(task.partitions))
            ]
            for group in groups
            for task in group.tasks
        }

    def _resolve(self, case: _Case, settled: Settled) -> None:
        """Determine the transaction's outcome, and resume, unless another worker owns it (R3)."""
        group = case.group
        if case.unknown:
            outcomes = {task: task.outcome(settled[task]) for task in group.tasks}
            became = _of_all(outcomes.values())
            self._counts.unknown_outcomes += 1
            self._events.info(
                "outcome_resolved", transactional_id=group.transactional_id, outcome=became.value
            )
            if became is Outcome.OVERTAKEN:
                moved = [task for task, found in outcomes.items() if found is became]
                self._fenced(case, _overtaken(group, moved))
                return
            if became is Outcome.COMMITTED:
                group.took_effect(task for task, found in outcomes.items() if found is became)
        if case.fence is not None:
            self._events.warning(case.fence.value, transactional_id=group.transactional_id)
        for task in group.tasks:
            task.start_at(settled[task])
        self._back_in_service(group, [p for task in group.tasks for p in settled[task]])

    def _back_in_service(self, group: ProducerGroup[Task], positions: Sequence[Position]) -> None:
        self._log.seek(positions)
        group.enter(TaskState.ASSIGNED)
        self._events.info(
            "task_recovered",
            transactional_id=group.transactional_id,
            offsets={str(p.topic_partition): p.offset for p in positions},
        )

    def _event(
        self, name: str, group: ProducerGroup[Task], error: TransactionError, **facts: object
    ) -> None:
        id_ = group.transactional_id
        self._events.warning(name, transactional_id=id_, error=str(error), **facts)


def _of_all(outcomes: Collection[Outcome]) -> Outcome:
    """Return the outcome of a transaction from its tasks; some may not have taken part."""
    for became in (Outcome.OVERTAKEN, Outcome.COMMITTED):
        if became in outcomes:
            return became
    return Outcome.NOT_COMMITTED


def _overtaken(group: ProducerGroup[Task], tasks: Sequence[Task]) -> TaskFenced:
    return TaskFenced(
        f"transactional.id {group.transactional_id}: the committed offsets of "
        f"{', '.join(str(partition) for task in tasks for partition in task.partitions)} were "
        f"moved by another worker"
    )


def _backoff_seconds(attempts: int) -> float:
    if attempts == 0:
        return 0.0
    return min(BACKOFF_SECONDS * 2**attempts, LONGEST_BACKOFF_SECONDS)
