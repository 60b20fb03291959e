"""The session of one transactional id: its state, its open transaction, and its failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    EosError,
    InstanceFenced,
    TransactionError,
    TransactionFatal,
)
from eosframework.transactions.ports import Output, TransactionalOutput
from eosframework.transactions.producing import produce_all
from eosframework.transactions.session.session_states import (
    MOVES,
    OUT,
    Event,
    FenceKind,
    Outcome,
    Policy,
    State,
    backoff_seconds,
    fence_kind,
)
from eosframework.transactions.session.transaction_size import TransactionSize

P = TypeVar("P")


class Work(Generic[P]):
    """The work of a session: what it processes, and where its progress is stored.

    P is the progress. Methods with a default suit work that has nothing to do there.
    """

    def committed(self, seconds: float) -> None:
        """Take the transaction, begun `seconds` ago, as committed; the default does nothing."""

    def reject(self, error: DataRejected) -> None:
        """Choose other data for the next transaction, because the brokers reject some of this.

        Raises:
            RunError: there is no other data.
        """
        raise NotImplementedError

    def records(self) -> int:
        """Return the number of records in the open transaction; 1 if it cannot have fewer."""
        return 1

    def is_excused(self, error: TransactionFatal) -> bool:
        """Return whether another transaction can succeed after a fatal error; by default none."""
        return False

    def drop(self) -> None:
        """Discard the open transaction, also if the failure ends the session.

        Called after each failure, and for a fence found in the recovery. The default does nothing.
        """

    def prove(self) -> None:
        """Return if this process still owns the work (R0); the default trusts the id.

        Raises:
            EosError: it does not, and the session ends.
            ClusterUnreachable: that cannot be determined now.
        """

    def outcome(self, found: P) -> Outcome:
        """Return the outcome of the last transaction, if it is in doubt.

        Raises:
            EosError: another process moved the progress, and the session ends.
        """
        raise NotImplementedError

    def resume(self, found: P, outcome: Outcome) -> None:
        """Resume at the progress (R3); the default does nothing."""

    def has_successor(self) -> bool:
        """Return whether another process is known to have claimed the work; by default none is.

        Its fence is no rival's.
        """
        return False

    def overtaken(self, found: P) -> TransactionError:
        """Return the error that stands for progress that another process moved (OVERTAKEN)."""
        raise NotImplementedError


class TransactionSession(Generic[P]):
    """One transactional id, from the begin of each transaction to its outcome.

    A `SessionGroup` commits and recovers it. A call in the wrong state is a program error.

    Args:
        output: producer with the id, inited.
        policy: the consequences of outcomes.
        clock: seconds, monotonic.

    Attributes:
        policy: the consequences of outcomes.
        work: decides and follows outcomes; set before the first transaction.
        outcome: of the last transaction, as far as it is known.
        size: the most records of a transaction.
        is_in_doubt: the progress has to show whether the last transaction was committed.
        fence: cause of the fence from which the session recovers; None: there was none.
    """

    def __init__(
        self, output: TransactionalOutput, policy: Policy, clock: Callable[[], float]
    ) -> None:
        self.output = output
        self.work: Work[P] = Work()
        self.state = State.READY
        self.is_in_doubt = False
        self.fence: FenceKind | None = None
        self.outcome = Outcome.NOT_COMMITTED
        self.not_before = 0.0
        self.attempts = 0
        self.size = TransactionSize(policy.timeout_seconds, clock)
        self.policy = policy
        self._clock = clock
        self._began_at: float | None = None
        self._failed_at: float | None = None
        self._aborts_in_a_row = 0
        self._fences_in_a_row = 0
        self._rival_fences: list[float] = []

    @property
    def transactional_id(self) -> str:
        """The id of the producer."""
        return self.output.transactional_id

    @property
    def is_out(self) -> bool:
        """True if the id has to be taken again before the next transaction."""
        return self.state in OUT

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            TransactionError: no transaction is open; pass it to `SessionGroup.failed`.
        """
        self.require(Event.BEGUN)
        self.outcome = Outcome.NOT_COMMITTED
        self.output.begin()
        self.size.begin()
        self.move(Event.BEGUN)
        self._began_at = self._clock()

    def produce(
        self, outputs: Sequence[Output], when_full: Callable[[], None] | None = None
    ) -> None:
        """Produce outputs in the open transaction; a full queue is waited for.

        Args:
            outputs: the outputs, in order.
            when_full: called before the queue is waited for.

        Raises:
            TransactionError: pass it to `SessionGroup.failed`.
        """
        self.require(Event.COMMITTING)
        produce_all(self.output, outputs, when_full)
        self.size.wrote(outputs)

    def age_seconds(self) -> float:
        """Return the age of the last transaction that was begun; 0 if its outcome is known."""
        return 0.0 if self._began_at is None else self._clock() - self._began_at

    def require(self, event: Event) -> None:
        """Raise an AssertionError unless `event` may happen now."""
        if event not in MOVES[self.state]:
            raise AssertionError(
                f"transactional.id {self.transactional_id}: {event.value} is not possible while "
                f"its session is {self.state.value}"
            )

    def move(self, event: Event) -> None:
        """Enter the next state."""
        self.require(event)
        self.state = MOVES[self.state][event]

    def committed(self, event: Event) -> None:
        """Note that the commit was confirmed, with COMMITTED or SUSPECTED."""
        self.move(event)
        self.took_effect()
        self.outcome = Outcome.COMMITTED
        self._began_at = None

    def took_effect(self) -> None:
        """Forget earlier failures after a transaction that was committed."""
        self._failed_at = None
        self._aborts_in_a_row = self._fences_in_a_row = 0

    def abort_now(self) -> None:
        """Schedule an abort; the next transaction will be another one."""
        self._out(Event.ABORTED)
        self._failed_at = None

    def abort_later(self, error: TransactionError) -> None:
        """Schedule an abort and a pause; only time can help."""
        self._require_patience(error)
        self._out(Event.ABORTED, backoff_seconds(self._aborts_in_a_row))
        self._aborts_in_a_row += 1

    def doubt(self, error: EosError, event: Event = Event.DOUBTED) -> None:
        """Note that the outcome of the transaction, or of the call, is unknown."""
        self._require_patience(error)
        self._out(event)
        self.is_in_doubt = True

    def fenced(self, error: TransactionError, cause: FenceKind | None = None) -> None:
        """Note a fence or progress that another process moved; schedule the proof of ownership.

        Args:
            error: of the call.
            cause: None: it follows from the error and the age of the transaction.

        Raises:
            InstanceFenced: another process has the id for good.
        """
        policy, now = self.policy, self._clock()
        kind = cause or fence_kind(error, self.age_seconds(), policy.timeout_seconds)
        self._count_rival(kind, now, error)
        self._require_patience(error)
        if self.is_out or self.state is State.TAKEN:
            self._began_at = now  # The transaction is over, so its age cannot explain the next one.
        was_read = self.state in (State.TAKEN, State.SUSPECT)
        event = Event.OVERTAKEN if was_read else Event.FENCED
        self._out(event, policy.watch_seconds or 0.0)
        self.fence = kind

    def retry_later(self, error: EosError, event: Event) -> None:
        """Schedule the next attempt after a failed init or reading."""
        self._require_patience(error)
        self.move(event)
        self.attempts += 1
        self.not_before = self._clock() + backoff_seconds(self.attempts)

    def resumed(self) -> None:
        """Note that the progress was read and the user resumes at it (R3)."""
        self.move(Event.OWN)
        self.is_in_doubt = False
        self.fence = None
        self.attempts = 0
        self._began_at = None

    def _out(self, event: Event, wait_seconds: float = 0.0) -> None:
        self.move(event)
        self.not_before = self._clock() + wait_seconds
        self.attempts = 0
        self.is_in_doubt = False
        self.fence = None

    def _count_rival(self, kind: FenceKind, now: float, error: TransactionError) -> None:
        if kind is not FenceKind.ANOTHER:
            return
        policy = self.policy
        if policy.watch_seconds is None:
            raise InstanceFenced(
                f"transactional.id {self.transactional_id} was taken over by {policy.successor}; "
                f"this one ends. {policy.advice}"
            ) from error
        self._fences_in_a_row += 1
        since = now - policy.rival_seconds
        self._rival_fences = [at for at in self._rival_fences if at > since] + [now]
        count = max(self._fences_in_a_row, len(self._rival_fences))
        if count >= policy.rival_fences:
            raise InstanceFenced(
                f"transactional.id {self.transactional_id} was taken over {count} times by "
                f"{policy.successor}. {policy.advice}"
            ) from error

    def _require_patience(self, error: EosError) -> None:
        now = self._clock()
        if self._failed_at is None:
            self._failed_at = now
        patience_seconds = self.policy.patience_seconds
        if patience_seconds is not None and now - self._failed_at >= patience_seconds:
            raise ClusterUnreachable(
                f"transactional.id {self.transactional_id}: no transaction was committed for "
                f"{patience_seconds:g} s ({error}). {self.policy.advice}"
            ) from error
