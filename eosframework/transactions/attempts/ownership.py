"""An attempt's ownership of its task: the transactional id, and the progress committed under it.

After a failed call it decides the next step, and the progress that the attempt may then trust.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    RunError,
    TaskFenced,
    TransactionError,
    TransactionFatal,
)
from eosframework.transactions import failpoints
from eosframework.transactions.attempts.attempt_takeover import SignOfLife, wait_for_turn
from eosframework.transactions.ports import (
    Commit,
    Output,
    TransactionalOutput,
    TransactionalOutputs,
)
from eosframework.transactions.session.session_group import (
    SessionCounts,
    SessionGroup,
    SessionUser,
)
from eosframework.transactions.session.session_policy import (
    PATIENCE_SECONDS,
    Policy,
    backoff_seconds,
)
from eosframework.transactions.session.session_states import Outcome, State
from eosframework.transactions.session.transaction_session import TransactionSession

SUCCESSOR_SECONDS = 5.0
"""Wait of an attempt whose transaction expired for a sign of a successor; one that took the task
announces itself with its first transaction."""

_T = TypeVar("_T")


class AttemptProgress(Protocol):
    """The progress of a task as an attempt wrote it."""

    @property
    def attempt(self) -> str:
        """Name of the attempt that wrote it."""
        ...

    @property
    def complete(self) -> bool:
        """True if nothing of the task is left."""
        ...

    @property
    def ended(self) -> bool:
        """True if the attempt that wrote it has ended, so its successor need not wait."""
        ...


P = TypeVar("P", bound=AttemptProgress)


class TaskLog(Protocol[P]):
    """The progress of one task in the control topic; its methods raise ClusterUnreachable."""

    def read(self) -> P | None:
        """Return the progress, once all transactions are decided."""
        ...

    def watch(self) -> P | None:
        """Return the decided progress, without waiting."""
        ...

    def written_end(self) -> int:
        """Return the log end offset, past open transactions."""
        ...

    def newest(self, since: int = 0) -> tuple[int, P] | None:
        """Return the last written progress from an offset on, committed or not."""
        ...

    def output(self, progress: P) -> Output:
        """Return the record that commits progress within a transaction."""
        ...


@dataclass(frozen=True, slots=True)
class OwnedTask(Generic[P]):
    """A task that attempts take from each other.

    Args:
        transactional_id: the same for every attempt.
        name: for messages.
        log: the progress of the task.
        outputs: transactional producers.
        stall_seconds: period without a sign of life after which another attempt counts as lost.
        timeout_seconds: the transaction timeout.
        logger: name of the log.
        run: id of the attempts that one driver started; empty: there is none.
    """

    transactional_id: str
    name: str
    log: TaskLog[P]
    outputs: TransactionalOutputs
    stall_seconds: float
    timeout_seconds: float
    logger: str
    run: str = ""


class Interrupted(Exception):
    """The transaction was not confirmed, and its task was dropped."""


class Ownership(SessionUser[TransactionSession, "P | None"], Generic[P]):
    """The ownership of one attempt.

    Args:
        task: the task.
        attempt: its unique name.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.

    Attributes:
        known: the last committed progress of the task known to this attempt.
        on_reject: called with the rejection of a transaction that has records; raises no
            TransactionError.
        on_drop: called when the open transaction is discarded.
    """

    def __init__(
        self,
        task: OwnedTask[P],
        attempt: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.known: P | None = None
        self.attempt = attempt
        self.on_reject: Callable[[DataRejected], None] = self._refuse_entry
        self.on_drop: Callable[[], None] = _nothing
        self._session: TransactionSession | None = None
        self._outputs = task.outputs
        self._sent: P | None = None
        self._drops = 0
        self._log = task.log
        self._identity = task.transactional_id
        self._run = task.run
        self._task = task.name
        self._stall_seconds = task.stall_seconds
        self._timeout_seconds = task.timeout_seconds
        self._taken_at = 0
        self._newest: tuple[int, P] | None = None
        self._looked_to = 0
        self._clock = clock
        self._sleep = sleep
        log = structlog.get_logger(task.logger).bind(attempt=attempt)
        self._events = log.bind(transactional_id=self._identity)
        self._group = SessionGroup(self._outputs, self, SessionCounts(), log, clock, sleep)

    @property
    def session(self) -> TransactionSession:
        """Session of the task's id, after `take`."""
        assert self._session is not None, "the id was not taken yet"
        return self._session

    def is_shared(self) -> bool:
        """Return whether another attempt of this run was active before."""
        if not self._run:
            return False
        newest = self._retrying(self._log.newest)
        return newest is not None and newest[1].attempt.endswith(run_suffix(self._run))

    def wait(self) -> P | None:
        """Wait until no other attempt is active (A1); return the progress if it is complete."""
        wait_for_turn(self._look, self._stall_seconds, clock=self._clock, sleep=self._sleep)
        found = self._retrying(self._log.watch)
        return found if found is not None and found.complete else None

    def take(self) -> None:
        """Take the task from every other attempt (A2), and read its progress (A3).

        Raises:
            InstanceFenced: another attempt took it meanwhile.
            RunError: the brokers refuse the id.
            ClusterUnreachable: the cluster did not answer for long.
        """
        [output] = init_ids(self._outputs, [self._identity], self._task, self._retrying)
        taken_at = self._retrying(self._log.written_end)
        self.adopt(output, taken_at, self._retrying(self._log.read))

    def adopt(self, output: TransactionalOutput, taken_at: int, known: P | None) -> None:
        """Own the task through an id that was inited before (A2).

        Args:
            output: its producer.
            taken_at: log end offset after the init, before the progress was read. Entries from
                there on belong to a successor, or to this attempt: earlier ones were fenced.
            known: the progress, read after the init (A3).
        """
        policy = Policy(
            self._timeout_seconds,
            successor="another attempt",
            advice="Another attempt of the task resumes at the committed progress",
        )
        self._session = TransactionSession(output, policy, self._clock)
        self._taken_at, self.known = taken_at, known

    def begin(self) -> None:
        """Begin a transaction without records of the task."""
        self.session.begin()

    def commit(self, progress: P) -> None:
        """Commit the records produced since the begin, with the progress (A6).

        Raises:
            TransactionError: a call before the commit failed; pass it to `failed`.
            Interrupted: the task was dropped; `settle`, then resume at `known`.
            InstanceFenced: it is committed, and another attempt has continued from there.
        """
        self.session.produce([self._log.output(progress)])
        self._sent, drops = progress, self._drops
        self._group.commit([self.session], [Commit(self.session.output, (), None)])
        if self._drops != drops:
            raise Interrupted

    def write(self, outputs: Sequence[Output], progress: P) -> bool:
        """Commit outputs with the progress, and wait until the outcome is known (A6, A7).

        Returns:
            True if it is committed; else nothing of it is visible, and another call may succeed.

        Raises:
            InstanceFenced: another attempt has the task.
            RunError: no attempt can succeed until the cause is fixed.
            ClusterUnreachable: no transaction was committed for long.
        """
        try:
            self.begin()
            self.session.produce(outputs)
            self.commit(progress)
        except TransactionError as error:
            self.failed(error)
        except Interrupted:
            pass
        else:
            return True
        self.settle()
        return self.known == progress

    def failed(self, error: TransactionError) -> None:
        """Decide the consequence of a failed call (A7), and drop the task's transaction.

        Raises:
            InstanceFenced: another attempt has the task.
            RunError: no attempt can succeed until the cause is fixed.
            ClusterUnreachable: no transaction was committed for long.
        """
        self._group.failed(self.session, error)

    def settle(self) -> None:
        """Init the id again, if that is needed, and read the progress (A7); raises as `failed`."""
        before = self.known
        self._group.settle(self.session)
        self._events.info("task_recovered", committed=self.known != before)

    # --- what the session asks: see `SessionUser` -----------------------------------------------

    def committed(self, session: TransactionSession, seconds: float) -> None:
        """Take the progress as committed."""
        self.known = self._sent

    def reject(self, session: TransactionSession, error: DataRejected) -> None:
        """Bisect the rows."""
        self.on_reject(error)

    def drop(self, session: TransactionSession) -> None:
        """Discard the open transaction of the task."""
        self._drops += 1
        self.on_drop()

    def prove(self, session: TransactionSession) -> None:
        """Prove that no other attempt has the task (R0).

        A new init would fence a successor, which would init in turn: each of them ends the other's
        transaction. An abort needs no proof: the brokers have just accepted this producer.

        Raises:
            InstanceFenced: another attempt has written.
        """
        if session.state is State.ABORTABLE:
            return
        if session.fence is not None:
            seconds = min(SUCCESSOR_SECONDS, self._stall_seconds)
            wait_for_turn(self._look, seconds, clock=self._clock, sleep=self._sleep)
        newest = self._log.newest(self._taken_at)
        if newest is not None and newest[1].attempt != self.attempt:
            raise taken_over(self._task, newest[1])

    def read(self, sessions: Sequence[TransactionSession]) -> Sequence[P | None]:
        """Read the final progress (R2)."""
        return [self._log.read()]

    def outcome(self, session: TransactionSession, found: P | None) -> Outcome:
        """Return whether the last transaction is committed; raises as `own_progress`."""
        own = own_progress(found, self.known, self.attempt, self._task)
        return Outcome.NOT_COMMITTED if own == self.known else Outcome.COMMITTED

    def resume(self, session: TransactionSession, found: P | None, outcome: Outcome) -> None:
        """Resume at the progress (R3)."""
        self.known = found

    def close(self) -> None:
        """Discard the producer, if there is one; its open transaction is aborted."""
        if self._session is not None:
            self._outputs.close([self._session.output])

    def abort(self) -> bool:
        """Abort the open transaction at an early end; return whether the id is still owned."""
        if self.session.state is State.OPEN:
            self.session.abort_now()
        if self.session.state is State.ABORTABLE:
            self._group.recover([self.session])
        return self.session.state is State.READY

    def _refuse_entry(self, error: DataRejected) -> None:
        raise RunError(f"{self._task}: the brokers refuse its progress: {error}") from error

    def _look(self) -> SignOfLife:
        # Other tasks' entries make the log long: each look resumes where the last one ended.
        end = self._log.written_end()
        self._newest = self._log.newest(self._looked_to) or self._newest
        self._looked_to = end
        if self._newest is None:
            return SignOfLife()
        offset, progress = self._newest
        ended = progress.ended
        if progress.complete:
            decided = self._log.watch()
            ended = decided is not None and decided.complete
        return SignOfLife(offset, ended)

    def _retrying(self, call: Callable[[], _T]) -> _T:
        return patiently(call, self._task, self._events, self._clock, self._sleep)


def init_ids(
    outputs: TransactionalOutputs,
    ids: Sequence[str],
    task: str,
    retrying: Callable[[Callable[[], list[TransactionalOutput]]], list[TransactionalOutput]],
) -> list[TransactionalOutput]:
    """Take ids from every other attempt (A2), and return their producers.

    Args:
        outputs: transactional producers.
        ids: the transactional ids.
        task: for messages.
        retrying: returns the result of a call; see `patiently`.

    Raises:
        InstanceFenced: another attempt took one meanwhile.
        RunError: the brokers refuse an id.
        ClusterUnreachable: the cluster did not answer for long.
    """
    failpoints.hit("takeover.before_init")
    try:
        found = retrying(lambda: outputs.open(ids))
    except TaskFenced as error:
        raise taken_over(task) from error
    except TransactionFatal as error:
        raise RunError(str(error)) from error
    failpoints.hit("takeover.after_init")
    return found


def patiently(
    call: Callable[[], _T],
    task: str,
    events: structlog.stdlib.BoundLogger,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """Return the result of a call that is repeated while brokers are unavailable.

    Args:
        call: may be repeated.
        task: for messages.
        events: gets a line for each repetition.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.

    Raises:
        ClusterUnreachable: the brokers were unavailable for long.
    """
    deadline, attempts = clock() + PATIENCE_SECONDS, 0
    while True:
        try:
            return call()
        except (ClusterUnreachable, Retriable, OutcomeUnknown) as error:
            if clock() >= deadline:
                raise ClusterUnreachable(
                    f"{task}: the brokers were unavailable for {PATIENCE_SECONDS:g} s ({error}); "
                    f"what is committed stays, and another attempt resumes there"
                ) from error
            attempts += 1
            events.warning("call_repeated", error=str(error))
        sleep(backoff_seconds(attempts))


def _nothing() -> None:
    """Do nothing: no task runs yet."""


def run_suffix(run: str) -> str:
    """Return the suffix of the names of a run's attempts."""
    return f"@{run}" if run else ""


def own_progress(found: P | None, known: P | None, attempt: str, task: str) -> P | None:
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


def taken_over(task: str, found: AttemptProgress | None = None) -> InstanceFenced:
    """Return the error of an attempt whose task another one has."""
    by = "" if found is None else f" ({found.attempt})"
    return InstanceFenced(
        f"{task} was taken over by another attempt{by}, which continues it; this one ends, and its "
        f"open transaction is aborted"
    )
