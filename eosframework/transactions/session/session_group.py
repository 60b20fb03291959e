"""Sessions that commit together, and their recovery.

    abortable     R1 abort and recycle         ─┐
    unknown       R1 recycle                    ├─▶ R2 read the stable progress
    fenced        R0 watch, prove; R1 recycle  ─┘   R3 resume at it
    suspect       recycled already; R2: moved by another process: a fence; else resume

All due sessions go through R1 together, and through R2 with one request. After R1 no request of the
old producer can take effect, so R2 reads a final state: nothing is guessed.

A fenced producer was replaced by a successor, or expired by the brokers. An immediate re-init would
fence a rightful successor, which would do the same in return. So the session first gives one the
time to show itself, and the user proves that it still owns the work (R0). It may also end there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    EosError,
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
    TransactionThrottled,
    TransactionTooLong,
    worst,
)
from eosframework.transactions.ports import Commit, Committed, TransactionalOutputs
from eosframework.transactions.session.session_states import Event, FenceKind, Outcome, State
from eosframework.transactions.session.transaction_session import TransactionSession

S = TypeVar("S", bound=TransactionSession[Any])
P = TypeVar("P")
F = TypeVar("F")


class Counts(Protocol):
    """The counters of sessions."""

    commits: int
    aborts: int
    recycles: int
    fences: int
    unknown_outcomes: int


@dataclass(slots=True)
class SessionCounts:
    """Counters for work that reports none of its own."""

    commits: int = 0
    aborts: int = 0
    recycles: int = 0
    fences: int = 0
    unknown_outcomes: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """The measures of one round of commits.

    Args:
        seconds: time until the brokers had decided all of them.
        recycled: a producer was replaced, which is part of that time.
    """

    seconds: float
    recycled: bool


class SessionGroup(Generic[S, P]):
    """Commits and recovers sessions.

    Args:
        outputs: has opened the sessions' producers.
        read: returns the stable progress of sessions (R2), with one request; it raises
            ClusterUnreachable or a TransactionError if the brokers do not answer.
        counts: receives the numbers.
        events: the log.
        clock: seconds, monotonic.
        sleep: waits for seconds, in `settle`.
    """

    def __init__(
        self,
        outputs: TransactionalOutputs,
        read: Callable[[Sequence[S]], Sequence[P]],
        counts: Counts,
        events: Any,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._outputs = outputs
        self._read = read
        self._counts = counts
        self._events = events
        self._clock = clock
        self._sleep = sleep

    def transact(self, session: S, fill: Callable[[], Commit]) -> bool:
        """Run one transaction until its outcome is decided.

        Args:
            session: is ready.
            fill: produces the records, and returns the session's part of the commit.

        Returns:
            True if it is committed; otherwise nothing of it is visible.

        Raises:
            RunError: no retry can succeed until the cause is fixed.
            InstanceFenced: another process has the id.
            ClusterUnreachable: no transaction was committed for the policy's patience.
        """
        try:
            session.begin()
            commit = fill()
        except TransactionError as error:
            self.failed(session, error)
        else:
            self.commit([session], [commit])
        return self.settle(session) is Outcome.COMMITTED

    def commit(
        self, sessions: Sequence[S], commits: Sequence[Commit], within_seconds: float | None = None
    ) -> Round:
        """Commit in one round, and check the progress of suspect sessions (R2).

        Each session gets its result, whatever the result of another causes.

        Args:
            sessions: with an open transaction each.
            commits: their parts.
            within_seconds: see `TransactionalOutputs.commit`.

        Raises:
            RunError: no retry can succeed until the cause is fixed.
            InstanceFenced: another process has an id.
            ClusterUnreachable: no transaction was committed for the policy's patience.
        """
        for session in sessions:
            session.move(Event.COMMITTING)
        began = self._clock()
        results = self._outputs.commit(commits, within_seconds)
        took_seconds = self._clock() - began
        self._each(zip(sessions, results, strict=True), self._decided)
        self._check([session for session in sessions if session.state is State.SUSPECT])
        return Round(took_seconds, any(result.recycled for result in results))

    def _decided(self, session: S, result: Committed) -> None:
        """Take the result of a commit."""
        self._counts.recycles += result.recycled
        records = session.work.records()
        session.size.sent(records, result.throttled_seconds)
        if result.error is not None:
            session.size.failed(records, result.throttled_seconds)
            return self.failed(session, result.error)
        self._counts.commits += 1
        seconds = session.age_seconds()
        session.size.committed()
        session.committed(Event.SUSPECTED if result.recycled else Event.COMMITTED)
        session.work.committed(seconds)

    def _each(self, found: Iterable[tuple[S, F]], take: Callable[[S, F], object]) -> None:
        """Let each session take what was found for it; of several failures, all are logged.

        Raises:
            Exception: the worst failure.
        """
        failures: list[tuple[S, Exception]] = []
        for session, one in found:
            try:
                take(session, one)
            except Exception as error:
                failures.append((session, error))
        for session, error in failures if len(failures) > 1 else ():
            self._event("session_failed", session, error)
        if failures:
            raise worst([error for _, error in failures])

    def failed(self, session: S, error: TransactionError) -> None:
        """Decide the consequence of a failed call, and take the session out of service.

        Raises:
            RunError: no retry can succeed until the cause is fixed.
            InstanceFenced: another process has the id.
            ClusterUnreachable: no transaction was committed for the policy's patience.
        """
        try:
            self._decide(session, error)
        except EosError:
            if not session.is_out:
                session.move(Event.ENDED)
            raise
        finally:
            session.work.drop()

    def recover(self, sessions: Sequence[S]) -> None:
        """Recover the sessions whose pause is over; one failed attempt costs one pause.

        Raises:
            EosError: as `failed`; or the user ends a session.
        """
        now = self._clock()
        due = [session for session in sessions if session.is_out and now >= session.not_before]
        taken = self._taken([session for session in due if self._is_proven(session)])
        if not taken:
            return
        try:
            found = self._read(taken)
        except (TransactionError, ClusterUnreachable) as error:
            for session in taken:
                self._retry_later(session, error, Event.UNREAD)
            return
        self._each(zip(taken, found, strict=True), self._resume)

    def settle(self, session: S) -> Outcome:
        """Wait until a session is recovered, and return the outcome of its last transaction.

        Raises:
            EosError: as `recover`.
        """
        while session.is_out:
            self._sleep(max(session.not_before - self._clock(), 0.0))
            self.recover([session])
        if (rest_seconds := session.size.rest_seconds) > 0:
            self._sleep(rest_seconds)
        return session.outcome

    def _decide(self, session: S, error: TransactionError) -> None:
        match error:
            case DataRejected():
                self._event("output_rejected", session, error)
                self._abort(session)
                session.work.reject(error)
            case TransactionTooLong():
                self._event("transaction_too_long", session, error)
                self._abort(session)
            case TransactionThrottled():
                self._event("transaction_throttled", session, error)
                self._counts.aborts += 1
                session.abort_later(error)
                session.size.refuse(error)
            case TransactionAborted():
                self._event("transaction_aborted", session, error)
                self._counts.aborts += 1
                session.abort_later(error)
            case OutcomeUnknown() | Retriable():
                self._event("outcome_unknown", session, error)
                session.doubt(error)
            case TaskFenced():
                self._fenced(session, error)
            case TransactionFatal() if session.work.is_excused(error):
                self._event("transaction_excused", session, error)
                self._abort(session)
            case TransactionFatal():
                raise RunError(str(error)) from error
            case _:
                raise error

    def _abort(self, session: S) -> None:
        self._counts.aborts += 1
        session.abort_now()

    def _fenced(self, session: S, error: TransactionError) -> None:
        self._counts.fences += 1
        age_seconds = round(session.age_seconds(), 1)
        self._event("task_fenced", session, error, transaction_age_seconds=age_seconds)
        cause = FenceKind.SUCCESSOR if session.work.has_successor() else None
        try:
            session.fenced(error, cause)
        except InstanceFenced:
            with suppress(ClusterUnreachable, Retriable):
                session.work.prove()  # It may know more of the successor.
            raise

    def _check(self, suspects: Sequence[S]) -> None:
        """Read the progress of sessions whose producer was replaced after the commit (R2)."""
        # 1. A commits and is found suspect; A is suspended; its work moves; B commits
        # 2. A resumes, and its re-init fences B, the rightful owner
        # 3. A must not run a record from its old progress. That its offsets would be refused is
        #    the second fence, not the first.
        # A producer that could not be replaced would be at its next begin, unnoticed.
        for session in [session for session in suspects if session.output.is_suspect]:
            self._unread(session, OutcomeUnknown("the suspect producer is not replaced yet"))
        suspects = [session for session in suspects if session.state is State.SUSPECT]
        if not suspects:
            return
        try:
            found = self._read(suspects)
        except (TransactionError, ClusterUnreachable) as error:
            for session in suspects:
                if isinstance(error, TransactionFatal):
                    raise RunError(str(error)) from error
                self._unread(session, error)
            return
        self._each(zip(suspects, found, strict=True), self._checked)

    def _unread(self, session: S, error: EosError) -> None:
        self._event("outcome_unknown", session, error)
        session.doubt(error, Event.UNREAD)
        session.work.drop()

    def _checked(self, session: S, progress: P) -> None:
        if session.work.outcome(progress) is Outcome.OVERTAKEN:
            self.failed(session, session.work.overtaken(progress))
        else:
            session.resumed()

    def _is_proven(self, session: S) -> bool:
        """Prove that this process still owns the work (R0)."""
        try:
            session.work.prove()
        except (ClusterUnreachable, Retriable) as error:
            self._retry_later(session, error, Event.REFUSED)
            return False
        return True

    def _taken(self, due: Sequence[S]) -> list[S]:
        """Init the ids again (R1), and return the sessions for which that succeeded."""
        taken: list[S] = []

        def take(session: S, error: TransactionError | None) -> None:
            if error is not None:
                return self._retry_later(session, error, Event.REFUSED)
            self._counts.recycles += 1
            session.move(Event.TAKEN)
            taken.append(session)

        self._each(self._inited(due), take)
        return taken

    def _inited(self, due: Sequence[S]) -> Iterator[tuple[S, TransactionError | None]]:
        aborts = [session for session in due if session.state is State.ABORTABLE]
        others = [session for session in due if session.state is not State.ABORTABLE]
        for sessions, end in ((aborts, self._outputs.abort), (others, self._outputs.recycle)):
            if sessions:
                errors = end([session.output for session in sessions])
                yield from zip(sessions, errors, strict=True)

    def _retry_later(self, session: S, error: EosError, event: Event) -> None:
        match error:
            case TaskFenced():
                self._fenced(session, error)
                session.work.drop()
            case TransactionFatal():
                raise RunError(str(error)) from error
            case _:
                session.retry_later(error, event)
                self._event("recovery_retried", session, error, attempts=session.attempts)

    def _resume(self, session: S, progress: P) -> None:
        """Resume at the progress (R3), unless another process has moved it."""
        outcome = session.work.outcome(progress)
        if session.is_in_doubt:
            self._counts.unknown_outcomes += 1
            self._events.info(
                "outcome_resolved",
                transactional_id=session.transactional_id,
                outcome=outcome.value,
            )
        if outcome is Outcome.OVERTAKEN:
            self._fenced(session, session.work.overtaken(progress))
            return session.work.drop()
        if session.fence is not None:
            self._events.warning(session.fence.value, transactional_id=session.transactional_id)
        if outcome is Outcome.COMMITTED:
            session.took_effect()
        session.work.resume(progress, outcome)
        if session.outcome is not Outcome.COMMITTED:  # Else its suspect commit was confirmed.
            session.outcome = outcome
        session.resumed()

    def _event(self, name: str, session: S, error: Exception, **facts: object) -> None:
        id_ = session.transactional_id
        self._events.warning(name, transactional_id=id_, error=str(error), **facts)
