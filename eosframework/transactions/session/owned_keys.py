"""Keys of the journal that a process owns: work whose progress is committed with its effects.

    claim     init the transactional ids, which fences every earlier owner and ends its transaction;
              then read the keys, with no transaction undecided: no entry of an earlier owner can
              follow
    write     effects and progress, in one transaction
    decide    the outcome, before the next step (`session_group`). In doubt, init the id again and
              read the key: it has the progress of the transaction, or the one before. Any other was
              written by another owner, which continues the work

All work outside of workers and table writers is written so: relays, replays, cutovers, the start of
a job, attempts at tasks of a backfill or shards of a sink, and the driver of a sink.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    RunError,
    TaskFenced,
    TransactionFatal,
)
from eosframework.records import Position
from eosframework.transactions import failpoints
from eosframework.transactions.ports import (
    Commit,
    Entries,
    Journal,
    Output,
    TransactionalOutput,
    TransactionalOutputs,
)
from eosframework.transactions.session.session_group import (
    Counts,
    SessionCounts,
    SessionGroup,
)
from eosframework.transactions.session.session_states import Outcome, Policy, State, backoff_seconds
from eosframework.transactions.session.transaction_session import TransactionSession, Work

P = TypeVar("P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Claim(Generic[P]):
    """A transactional id with the key of its progress.

    Args:
        transactional_id: the same for every owner.
        name: of the work, for messages.
        key: in the journal; empty: `OwnedKey.move_to` sets it before the first transaction.
        read: returns the progress in an entry; None: the entry counts as none.
        data: returns the entry of a progress, as JSON data.
        writer: describes the owner that wrote a progress, for messages.
    """

    transactional_id: str
    name: str
    key: str
    read: Callable[[Any], P | None]
    data: Callable[[P], Any]
    writer: Callable[[P], str] = lambda _: ""

    def of(self, entries: Entries) -> P | None:
        """Return the progress in entries of the journal; None: there is none."""
        entry = entries.get(self.key)
        return None if entry is None else self.read(entry)


class OwnedKey(TransactionSession["P | None"], Generic[P]):
    """The session of one claim.

    Attributes:
        claim: its id and its key.
        known: the committed progress; None: there is none.
        sent: the progress of the last transaction.
        claimed_at: log end offset after the init. Entries from there on belong to this owner, or to
            a successor.
        lost: what to do if progress is gone, for the message.
    """

    def __init__(
        self,
        claim: Claim[P],
        output: TransactionalOutput,
        policy: Policy,
        journal: Journal,
        clock: Callable[[], float],
        known: P | None,
        claimed_at: int,
        lost: str,
    ) -> None:
        super().__init__(output, policy, clock)
        self.claim = claim
        self.lost = lost
        self.known, self.sent = known, known
        self.claimed_at = claimed_at
        self._journal = journal
        KeyWork(self)

    def append(self, progress: P, when_full: Callable[[], None] | None = None) -> None:
        """Produce the progress, the last record of the open transaction.

        It differs from `known`, or the transaction has no effects: an outcome in doubt is decided
        by it.

        Raises:
            TransactionError: pass it to `SessionGroup.failed`.
        """
        self.sent = progress
        entry = self._journal.output(self.claim.key, self.claim.data(progress))
        self.produce([entry], when_full)

    def move_to(self, claim: Claim[P], known: P | None) -> None:
        """Continue the same work under another key; no transaction is open."""
        self.claim, self.known, self.sent = claim, known, known

    def taken_over(self, writer: str) -> InstanceFenced:
        """Return the error of work that another owner has; `writer` describes it."""
        return self.policy.taken_over(self.claim.name, writer)


class KeyWork(Work["P | None"], Generic[P]):
    """The work of one key: its progress decides the outcome of the last transaction.

    Args:
        owned: the key; it has this work from now on.
    """

    def __init__(self, owned: OwnedKey[P]) -> None:
        self.owned = owned
        owned.work = self

    def committed(self, seconds: float) -> None:
        """Take the progress as committed."""
        self.owned.known = self.owned.sent

    def reject(self, error: DataRejected) -> None:
        """Choose other data for the next transaction; here there is none.

        Raises:
            RunError: there is no other data.
        """
        raise RunError(
            f"Kafka refuses a record of {self.owned.claim.name} that is part of every transaction "
            f"({error}); without it nothing can be written exactly once"
        ) from error

    def outcome(self, found: P | None) -> Outcome:
        """Return the outcome of the last transaction.

        Raises:
            InstanceFenced: another owner wrote the progress.
            RunError: committed progress is gone.
        """
        owned = self.owned
        if found == owned.known:
            return Outcome.NOT_COMMITTED
        if found is None:
            raise RunError(
                f"the progress of {owned.claim.name} is missing in the control topic, which was "
                f"deleted or emptied. {owned.lost}"
            )
        if found == owned.sent:
            return Outcome.COMMITTED
        raise owned.taken_over(owned.claim.writer(found))

    def resume(self, found: P | None, outcome: Outcome) -> None:
        """Resume at the progress (R3)."""
        self.owned.known = found


class OwnedKeys(Generic[P]):
    """Claims keys and commits their progress; see above.

    Args:
        outputs: transactional producers.
        journal: has the keys.
        policy: the consequences of outcomes. With a limit of patience a claim is repeated until
            then; without one its caller repeats it.
        events: the log.
        lost: what to do if progress is gone, for the message.
        checks: by further keys, a check of their entries, which are read with the progress; it ends
            the work by an EosError.
        since: offset in the journal at which the entries may begin; None: it is not known.
        before: the entries of the keys before that offset.
        counts: receives the numbers.
        clock: seconds, monotonic.
        sleep: waits for seconds.

    Attributes:
        policy: as given.
        sessions: commits and recovers several keys together.
    """

    def __init__(
        self,
        outputs: TransactionalOutputs,
        journal: Journal,
        policy: Policy,
        events: Any,
        *,
        lost: str,
        checks: Mapping[str, Callable[[Any], None]] | None = None,
        since: int | None = None,
        before: Entries | None = None,
        counts: Counts | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._outputs = outputs
        self._journal = journal
        self.policy = policy
        self._events = events
        self._lost = lost
        self._checks = checks or {}
        self._since = since
        self._before = before or {}
        self._clock = clock
        self._sleep = sleep
        counts = counts or SessionCounts()
        self.sessions: SessionGroup[OwnedKey[P], P | None] = SessionGroup(
            outputs, self._progress, counts, events, clock, sleep
        )

    def claim(self, claims: Sequence[Claim[P]]) -> list[OwnedKey[P]]:
        """Take ids from every other owner, and read their progress.

        Raises:
            InstanceFenced: another owner took one meanwhile.
            RunError: the brokers refuse an id.
            ClusterUnreachable: the cluster did not answer for long.
            TransactionError: an init failed, and the policy has no limit of patience.
        """
        name = claims[0].name
        failpoints.hit("takeover.before_init")
        try:
            ids = [claim.transactional_id for claim in claims]
            outputs = self.patiently(lambda: self._outputs.open(ids), name)
        except TaskFenced as error:
            if self.policy.watch_seconds is not None:
                raise
            raise self.policy.taken_over(name) from error
        except TransactionFatal as error:
            raise RunError(str(error)) from error
        failpoints.hit("takeover.after_init")
        try:
            claimed_at = self.patiently(self._journal.written_end, name)
            known = self.patiently(lambda: self._read(claims), name)
        except BaseException:
            self._outputs.close(outputs)
            raise
        given = self.policy, self._journal, self._clock
        return [
            OwnedKey(claim, output, *given, one, claimed_at, self._lost)
            for claim, output, one in zip(claims, outputs, known, strict=True)
        ]

    def write(
        self,
        owned: OwnedKey[P],
        effects: Iterable[Sequence[Output]],
        progress: P,
        positions: Sequence[Position] = (),
        membership: object = None,
    ) -> bool:
        """Commit effects with their progress, and wait until the outcome is known.

        Args:
            owned: is ready.
            effects: the records, in parts.
            progress: after them.
            positions: offsets of a consumer group to commit as well.
            membership: in that group, see `Fetched`.

        Returns:
            True if they are committed; else nothing is visible, and another call may succeed.

        Raises:
            InstanceFenced: another owner has the id.
            RunError: no transaction can succeed until the cause is fixed.
            ClusterUnreachable: no transaction was committed for long.
        """

        def fill() -> Commit:
            for outputs in effects:
                owned.produce(outputs)
            owned.append(progress)
            return Commit(owned.output, positions, membership)

        return self.sessions.transact(owned, fill)

    def commit(self, owned: OwnedKey[P], progress: P) -> bool:
        """Commit the open transaction with its progress.

        Returns:
            False: it was dropped; `SessionGroup.settle`, then resume at `known`.

        Raises:
            TransactionError: a call before the commit failed; pass it to `SessionGroup.failed`.
            InstanceFenced: it is committed, and another owner has continued from there.
        """
        owned.append(progress)
        self.sessions.commit([owned], [Commit(owned.output, (), None)])
        return not owned.is_out

    def abort(self, owned: OwnedKey[P]) -> bool:
        """Abort the open transaction at an early end; return whether the id is still owned."""
        if owned.state is State.OPEN:
            owned.abort_now()
        if owned.state is State.ABORTABLE:
            self.sessions.recover([owned])
        return owned.state is State.READY

    def close(self, owned: Sequence[OwnedKey[P]]) -> None:
        """Discard the producers; their open transactions are aborted."""
        self._outputs.close([one.output for one in owned])

    def patiently(self, call: Callable[[], _T], name: str) -> _T:
        """Return the result of a call; it is repeated while brokers are unavailable.

        Args:
            call: may be repeated.
            name: of the work, for the message.

        Raises:
            ClusterUnreachable: the brokers were unavailable for the policy's patience.
        """
        patience_seconds, began, attempts = self.policy.patience_seconds, self._clock(), 0
        while True:
            try:
                return call()
            except (ClusterUnreachable, Retriable, OutcomeUnknown) as error:
                if patience_seconds is None:
                    raise
                if self._clock() - began >= patience_seconds:
                    raise ClusterUnreachable(
                        f"{name}: the brokers were unavailable for {patience_seconds:g} s "
                        f"({error}). {self.policy.advice}"
                    ) from error
                attempts += 1
                self._events.warning("call_repeated", error=str(error))
            self._sleep(backoff_seconds(attempts))

    def _progress(self, sessions: Sequence[OwnedKey[P]]) -> Sequence[P | None]:
        """Read the final progress (R2)."""
        return self._read([session.claim for session in sessions])

    def _read(self, claims: Sequence[Claim[P]]) -> list[P | None]:
        keys = [*self._checks, *(claim.key for claim in claims if claim.key)]
        entries: Entries = self._journal.settled(keys, self._since) if keys else {}
        entries = {**self._before, **entries}
        for key, check in self._checks.items():
            check(entries.get(key))
        return [claim.of(entries) for claim in claims]
