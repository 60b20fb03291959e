"""An attempt's ownership of its task: the transactional id, and the progress committed under it.

After a failed call it decides the next step, and the progress that the attempt may then trust.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import structlog

from eosframework import failpoints
from eosframework.backfill.executor.attempt_context import AttemptContext
from eosframework.backfill.executor.attempt_takeover import SignOfLife, wait_for_turn
from eosframework.backfill.job.job_entry import TaskProgress
from eosframework.errors import (
    ClusterUnreachable,
    IdExpired,
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
)
from eosframework.processing.ports import Commit, TransactionalOutput
from eosframework.processing.transaction.producing import produce_all

PATIENCE_SECONDS = 120.0
"""Longest wait for brokers that do not answer; then Spark may retry the task."""

SUCCESSOR_SECONDS = 5.0
"""Wait of an attempt whose transaction expired for a sign of a successor; one that took the task
announces itself with its first transaction."""

BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 5.0

_T = TypeVar("_T")


class Ownership:
    """The ownership of one attempt.

    Args:
        context: its dependencies.
        attempt: its unique name.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.

    Attributes:
        known: the last committed progress of the task known to this attempt.
    """

    def __init__(
        self,
        context: AttemptContext,
        attempt: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.known: TaskProgress | None = None
        self.attempt = attempt
        self._output: TransactionalOutput | None = None
        self._outputs = context.outputs
        self._log = context.log
        self._identity = str(context.identity)
        self._run = context.run
        self._names = context.sub_topology, context.partition
        self._task = f"task {context.sub_topology}[{context.partition}] of the backfill"
        self._stall_seconds = context.settings.backfill.stall_seconds
        self._timeout_seconds = context.settings.worker.transaction_timeout_seconds
        self._taken_at = 0
        self._clock = clock
        self._sleep = sleep
        self._events = structlog.get_logger("eosframework.backfill").bind(
            transactional_id=self._identity, attempt=attempt
        )

    @property
    def output(self) -> TransactionalOutput:
        """Output under the task's id, after `take`."""
        assert self._output is not None, "the id was not taken yet"
        return self._output

    def is_shared(self) -> bool:
        """Return whether another attempt of this run was active before."""
        if not self._run:
            return False
        newest = self._retrying(lambda: self._log.newest_of_task(*self._names))
        return newest is not None and newest[1].attempt.endswith(run_suffix(self._run))

    def wait(self) -> TaskProgress | None:
        """Wait until no other attempt is active (A1); return the progress if it is complete."""
        wait_for_turn(self._look, self._stall_seconds, clock=self._clock, sleep=self._sleep)
        found = self._retrying(lambda: self._log.watch_task(*self._names))
        return found if found is not None and found.complete else None

    def take(self) -> None:
        """Take the task from every other attempt (A2), and read its progress (A3).

        Raises:
            InstanceFenced: another attempt took it meanwhile.
            RunError: the brokers refuse the id.
            ClusterUnreachable: the cluster did not answer for long.
        """
        failpoints.hit("takeover.before_init")
        try:
            [self._output] = self._retrying(lambda: self._outputs.open([self._identity]))
        except TaskFenced as error:
            raise taken_over(self._task) from error
        except TransactionFatal as error:
            raise RunError(str(error)) from error
        failpoints.hit("takeover.after_init")
        # Entries from here on belong to a successor, or to this attempt: earlier ones were fenced.
        self._taken_at = self._retrying(self._log.written_end)
        self.known = self._retrying(lambda: self._log.read_task(*self._names))

    def commit(self, progress: TaskProgress) -> None:
        """Commit the records produced since the begin, with the progress (A6).

        Raises:
            TransactionError: the commit failed; see `regain`.
            InstanceFenced: it is committed, and another attempt has continued from there.
        """
        produce_all(self.output, [self._log.progress_output(*self._names, progress)])
        [done] = self._outputs.commit([Commit(self.output, (), None)])
        if done.error is not None:
            raise done.error
        self.known = progress
        if done.recycled:
            self._settle()

    def regain(self, error: TransactionError, age_seconds: float) -> None:
        """Init the id again after a failed call, and read the progress (A7).

        Args:
            error: of the call.
            age_seconds: age of the transaction.

        Raises:
            InstanceFenced: another attempt has the task.
            RunError: no attempt can succeed until the cause is fixed.
            ClusterUnreachable: the cluster did not answer for long.
        """
        step = step_after(error, age_seconds, self._timeout_seconds)
        self._events.warning("transaction_failed", error=str(error), follows=step.value)
        deadline, attempts = self._clock() + PATIENCE_SECONDS, 0
        failed: Exception | None = error
        while failed is not None:
            if step is Step.FAIL:
                raise RunError(str(failed)) from failed
            if step is Step.END:
                raise taken_over(self._task) from failed
            failed = self._taken_again(step)
            if failed is not None:
                self._give_up_after(deadline, failed)
                attempts += 1
                self._sleep(min(BACKOFF_SECONDS * 2**attempts, LONGEST_BACKOFF_SECONDS))
            if isinstance(failed, TransactionError):
                next_ = step_after(failed, age_seconds, self._timeout_seconds)
                step = Step.RECYCLE if next_ is Step.ABORT else next_
        before = self.known
        self._settle()
        self._events.info("task_recovered", committed=self.known != before)

    def close(self) -> None:
        """Discard the producer, if there is one; its open transaction is aborted."""
        if self._output is not None:
            self._outputs.close([self._output])

    def abort(self) -> bool:
        """Abort the open transaction at an early end; return whether the id is still owned."""
        [error] = self._outputs.abort([self.output])
        return error is None

    def _look(self) -> SignOfLife:
        newest = self._log.newest_of_task(*self._names)
        if newest is None:
            return SignOfLife()
        offset, progress = newest
        ended = progress.ended
        if progress.complete:
            decided = self._log.watch_task(*self._names)
            ended = decided is not None and decided.complete
        return SignOfLife(offset, ended)

    def _taken_again(self, step: Step) -> Exception | None:
        """Init the id again; return the error if that failed."""
        try:
            if step is Step.WATCH:
                seconds = min(SUCCESSOR_SECONDS, self._stall_seconds)
                wait_for_turn(self._look, seconds, clock=self._clock, sleep=self._sleep)
            if step is not Step.ABORT:
                # A new init would fence a successor, which would init in turn: each of them ends
                # the other's transaction.
                self._refuse_successor()
        except ClusterUnreachable as error:
            return error
        end = self._outputs.abort if step is Step.ABORT else self._outputs.recycle
        [failed] = end([self.output])
        return failed

    def _refuse_successor(self) -> None:
        """Raise if another attempt has written: a new init would end it."""
        newest = self._log.newest_of_task(*self._names, self._taken_at)
        if newest is not None and newest[1].attempt != self.attempt:
            raise taken_over(self._task, newest[1])

    def _settle(self) -> None:
        """Read the final progress."""
        found = self._retrying(lambda: self._log.read_task(*self._names))
        self.known = own_progress(found, self.known, self.attempt, self._task)

    def _retrying(self, call: Callable[[], _T]) -> _T:
        """Return the result of a call; retries while brokers are unavailable."""
        deadline, attempts = self._clock() + PATIENCE_SECONDS, 0
        while True:
            try:
                return call()
            except (ClusterUnreachable, Retriable, OutcomeUnknown) as error:
                self._give_up_after(deadline, error)
                attempts += 1
                self._events.warning("call_repeated", error=str(error))
            self._sleep(min(BACKOFF_SECONDS * 2**attempts, LONGEST_BACKOFF_SECONDS))

    def _give_up_after(self, deadline: float, error: Exception) -> None:
        if self._clock() >= deadline:
            raise ClusterUnreachable(
                f"{self._task}: the brokers were unavailable for {PATIENCE_SECONDS:g} s "
                f"({error}); another attempt resumes at the committed progress"
            ) from error


def run_suffix(run: str) -> str:
    """Return the suffix of the names of a run's attempts."""
    return f"@{run}" if run else ""


class Step(StrEnum):
    """The first action after a failed call."""

    ABORT = "abort"
    """Abort: nothing becomes visible; then run the records again."""
    RECYCLE = "recycle"
    """The outcome is unknown: init the id again; the progress then shows it."""
    WATCH = "watch"
    """The transaction exceeded its timeout. Init the id again unless another attempt has it."""
    END = "end"
    """Another attempt has the task."""
    FAIL = "fail"
    """No attempt can succeed until the cause is fixed."""


def step_after(error: TransactionError, age_seconds: float, timeout_seconds: float) -> Step:
    """Return the step after an error.

    The brokers report `_FENCED` both for an id that another attempt initialized and for a
    transaction that exceeded its timeout; a younger one cannot have.

    Args:
        error: of a call.
        age_seconds: age of the transaction.
        timeout_seconds: the transaction timeout.
    """
    match error:
        case TransactionFatal():
            return Step.FAIL
        case IdExpired():
            return Step.WATCH
        case TaskFenced():
            # Two sequences end in _FENCED, and only one of them is a takeover:
            # 1. another attempt initializes the id, and the broker increments the epoch; or
            # 1. the transaction exceeds its timeout, and the broker aborts it with a new epoch.
            # 2. The next call of this producer has the old epoch.
            return Step.WATCH if age_seconds >= timeout_seconds else Step.END
        case TransactionAborted():
            return Step.ABORT
        case _:
            return Step.RECYCLE


def own_progress(
    found: TaskProgress | None, known: TaskProgress | None, attempt: str, task: str
) -> TaskProgress | None:
    """Return the progress from which an attempt resumes after it initialized its id again.

    Args:
        found: in the control topic, with no transaction undecided.
        known: last progress known to be committed: the attempt's own, or the first one found.
        attempt: name of the attempt.
        task: for messages.

    Raises:
        InstanceFenced: another attempt committed since.
        RunError: committed progress was deleted.
    """
    if found == known or (found is not None and found.attempt == attempt):
        return found
    if found is None:
        raise RunError(
            f"the progress of {task} is missing in the control topic, which was emptied or created "
            f"again, so the task's committed output is unknown. Use another job name, and an "
            f"application whose topics are empty"
        )
    raise taken_over(task, found)


def taken_over(task: str, found: TaskProgress | None = None) -> InstanceFenced:
    """Return the error of an attempt whose task another one has."""
    by = "" if found is None else f" ({found.attempt})"
    return InstanceFenced(
        f"{task} was taken over by another attempt{by}, which continues it; this one ends, and its "
        f"open transaction is aborted"
    )
