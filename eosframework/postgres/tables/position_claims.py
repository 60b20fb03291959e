"""The claim of table positions: one protocol for table writers and for attempts of a backfill.

    P1. claim: increment the epochs of positions and read them, in one statement, which waits for
        an open transaction that has written one of them
    P2. begin at the claimed offsets; a position that was never written gets its start offset. If
        that is the partition's end, it is written at once, because the end moves
    P3. write rows and positions in one transaction, which requires that each position's epoch and
        offset are still those of the claim
    P4. decide the outcome

    UNCLAIMED ──claimed──▶ HELD ──unknown──▶ IN DOUBT
        ▲                  │  ▲                  │
        └────superseded────┘  └─────claimed──────┘

    outcome       in the database                    then
    claimed       the position has a new epoch       after IN DOUBT its offset shows whether the
                                                     batch was written
    written       rows and position are committed    the next batch begins
    refused       rolled back because of one row     P3 without its record and all later ones;
                                                     then RecordFailed
    superseded    rolled back: a successor has       P3 for the other positions; P1 for this one
                  claimed a position                 after a pause, or InstanceFenced
    unknown       COMMIT or a statement before it    P1 after a pause
                  got no answer
    unavailable   the claim got no answer            P1 after a pause; the pauses double until a
                                                     batch is written

The patience is data (`ClaimPolicy`): a table writer waits for the database without limit, and
expects successors in a rebalance; an attempt of a backfill can be repeated by Spark, and a
successor ends it.

Only a claim reads a position. While a COMMIT is in doubt, a plain SELECT shows the previous value,
and the same rows would be written twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

import structlog

from eosframework.engine.task.measurements import Measures
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.engine.worker.worker_views import TaskView
from eosframework.errors import (
    DatabaseFault,
    DatabaseUnavailable,
    EosError,
    InstanceFenced,
    RecordFailed,
    RowRefused,
    RunError,
    SchemaRegistryUnavailable,
    Superseded,
    TransactionError,
)
from eosframework.postgres.tables.table_ports import Batch, Claim, RowMaker, RowStore
from eosframework.records import Position, TopicPartition
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Message

_FIRST_PAUSE_SECONDS = 0.05


class Outage:
    """The schedule of calls while a database, or the brokers that a claim needs, is unavailable.

    Args:
        longest_pause_seconds: no pause is longer.
        clock: seconds, monotonic.
        chance: a number from 0 to 1, so that workers do not all reconnect at once.
        logger: of structlog.
    """

    def __init__(
        self,
        *,
        longest_pause_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        logger: Any = None,
    ) -> None:
        self._longest_pause_seconds = longest_pause_seconds
        self._clock = clock
        self._chance = chance
        self._events = logger or structlog.get_logger("eosframework.tables")
        self._began: float | None = None
        self._attempts = 0
        self._due = clock()
        self._system = ""

    @property
    def unavailable(self) -> str | None:
        """The unavailable system as a sentence; None: no outage lasts."""
        return None if self._began is None else f"the {self._system} is unavailable"

    @property
    def lasted_seconds(self) -> float:
        """Seconds since the first failure; 0 if no outage lasts."""
        return 0.0 if self._began is None else self._clock() - self._began

    def is_due(self) -> bool:
        """Return whether the next call may be made."""
        return self._clock() >= self._due

    def remaining_seconds(self) -> float:
        """Return the time until the next call; 0 when it is due."""
        return max(0.0, self._due - self._clock())

    def failed(self, error: EosError) -> float:
        """Note that a call failed, and return the pause before the next.

        The pauses double, each shortened at random by up to a half. Only the first failure is
        logged, as `database_unavailable` or `cluster_unavailable`.
        """
        pause_seconds = _FIRST_PAUSE_SECONDS * 2.0 ** min(self._attempts, 30)
        pause_seconds = min(pause_seconds, self._longest_pause_seconds)
        pause_seconds *= 1 - self._chance() / 2
        if self._began is None:
            self._began = self._clock()
            self._system = "database" if isinstance(error, DatabaseFault) else "cluster"
            self._events.warning(f"{self._system}_unavailable", error=str(error))
        self._attempts += 1
        self._due = self._clock() + pause_seconds
        return pause_seconds

    def over(self) -> None:
        """Note that a call succeeded; after a failure, log `database_available`."""
        if self._began is not None:
            self._events.info(
                f"{self._system}_available",
                after_seconds=round(self.lasted_seconds, 1),
                attempts=self._attempts,
            )
        self._began = None
        self._attempts = 0
        self._due = self._clock()


_SCHEMAS_PAUSE_SECONDS = 1.0

Answer = TypeVar("Answer")

Begin = Callable[[Sequence[Claim]], Mapping[TopicPartition, int]]
"""Returns the offsets at which claimed partitions resume or start.

It may raise a TransactionError if the brokers do not answer, and a RunError if no record is left to
resume at.
"""


class TaskState(StrEnum):
    """States of a position."""

    UNCLAIMED = "unclaimed"
    HELD = "running"
    IN_DOUBT = "in_doubt"
    CLOSED = "closed"


class Outcome(StrEnum):
    """Outcomes of a call for one position."""

    CLAIMED = "claimed"
    WRITTEN = "written"
    REFUSED = "refused"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"
    UNAVAILABLE = "unavailable"
    DISCARDED = "discarded"
    """The rows cannot be made yet, because the schema registry is unavailable."""


TRANSITIONS: Mapping[tuple[TaskState, Outcome], TaskState] = {
    (TaskState.UNCLAIMED, Outcome.CLAIMED): TaskState.HELD,
    (TaskState.UNCLAIMED, Outcome.UNAVAILABLE): TaskState.UNCLAIMED,
    (TaskState.UNCLAIMED, Outcome.SUPERSEDED): TaskState.UNCLAIMED,
    (TaskState.HELD, Outcome.WRITTEN): TaskState.HELD,
    (TaskState.HELD, Outcome.REFUSED): TaskState.HELD,
    (TaskState.HELD, Outcome.SUPERSEDED): TaskState.UNCLAIMED,
    (TaskState.HELD, Outcome.DISCARDED): TaskState.UNCLAIMED,
    (TaskState.HELD, Outcome.UNKNOWN): TaskState.IN_DOUBT,
    (TaskState.IN_DOUBT, Outcome.CLAIMED): TaskState.HELD,
    (TaskState.IN_DOUBT, Outcome.UNAVAILABLE): TaskState.IN_DOUBT,
    (TaskState.IN_DOUBT, Outcome.SUPERSEDED): TaskState.IN_DOUBT,
}
"""The next state; a pair that is missing is a mistake of this module. SUPERSEDED before HELD: a
successor claimed between P1 and the write of P2."""


@dataclass(frozen=True, slots=True)
class ClaimPolicy:
    """The patience of a user of the protocol.

    Args:
        longest_pause_seconds: between two calls after failures.
        patience_seconds: longest time without a successful call, then RunError; None: no limit.
        resume: the next step for the message of that RunError.
        superseded_pause_seconds: before a superseded position is claimed again.
        superseded_in_a_row: number of times that a position may be superseded without a write in
            between, the last of which raises InstanceFenced.
        successor: the process that has the position then, and the next step, for the message.
    """

    longest_pause_seconds: float
    patience_seconds: float | None
    resume: str
    superseded_pause_seconds: float
    superseded_in_a_row: int
    successor: str


@dataclass(slots=True)
class PartitionTask:
    """One partition with its claim and the rows that are not written yet.

    Args:
        batch: in state HELD.
        claim_at: clock time from which the position may be claimed, in seconds.
        superseded: number of times in a row.
        records: number of records that the batch was made from.
        failure: of the record after the batch, which ends the process once the batch is written.
        in_doubt: the batch of unknown outcome, and its number of records.
        discarded_at: clock time of the first unwritten batch that was discarded.
    """

    partition: TopicPartition
    maker: RowMaker
    state: TaskState = TaskState.UNCLAIMED
    batch: Batch | None = None
    end_reached: int = 0
    claim_at: float = 0.0
    superseded: int = 0
    records: int = 0
    failure: RunError | None = None
    in_doubt: tuple[Batch, int] | None = None
    discarded_at: float | None = None

    @property
    def position(self) -> int:
        """The next offset to read; 0 before it is known."""
        return self.batch.next_offset if self.batch else 0

    @property
    def is_held(self) -> bool:
        """True if this process has the claim, as far as it knows."""
        return self.state is TaskState.HELD

    @property
    def may_have_more(self) -> bool:
        """True unless the partition is known to be read to its last stable offset."""
        return self.end_reached < self.position or self.batch is None

    @property
    def has_progress(self) -> bool:
        """True if a write would change the position."""
        return self.batch is not None and self.batch.next_offset != self.batch.claim.next_offset

    def add(self, messages: Sequence[Message]) -> None:
        """Add the rows of messages; a record without a row ends the batch and sets `failure`.

        Raises:
            SchemaRegistryUnavailable: the batch must be discarded.
        """
        assert self.batch is not None
        try:
            self.maker.add(messages, self.batch)
        except RecordFailed as error:
            self.failure, self.batch = error, self.batch.up_to(error.offset)
        self.records += len(messages)

    def reached_end(self, offset: int) -> None:
        """Note that the partition is read up to `offset`, its last stable offset.

        The next write stores it as well: retention may remove the markers before it.
        """
        self.end_reached = offset
        if self.batch is not None and self.failure is None:
            self.batch.next_offset = max(self.batch.next_offset, offset)

    def refuse(self, error: RowRefused) -> None:
        """Remove the refused row's record and all later records from the batch."""
        assert self.batch is not None
        self.batch = self.batch.up_to(error.offset)
        self.failure = RecordFailed(str(error), offset=error.offset)

    def begin(self, claim: Claim, offset: int) -> None:
        """Begin a batch at `offset`; a partition's first write stores it even without rows."""
        self.batch = self.maker.empty(claim, offset)

    def turn(self, outcome: Outcome) -> None:
        """Take the transition of an outcome; without a claim there is no batch."""
        if outcome is Outcome.UNKNOWN and self.batch is not None:
            self.in_doubt = self.batch, self.records
        self.state = TRANSITIONS[self.state, outcome]
        if self.state is not TaskState.HELD:
            self.batch = self.failure = None
            self.records = self.end_reached = 0

    def confirmed_batch(self, claim: Claim) -> tuple[Batch, int] | None:
        """Return the batch in doubt if the next claim, `claim`, shows that it was written.

        1. A COMMIT got no answer, so the batch may be written. 2. The claim waited for that
        transaction. 3. Its epoch follows the batch's only if no other claim came in between, and
        then its offset shows whether the batch was written.
        """
        if self.in_doubt is None:
            return None
        batch, _ = self.in_doubt
        is_next = claim.epoch == batch.claim.epoch + 1
        return self.in_doubt if is_next and claim.next_offset == batch.next_offset else None

    def view(self) -> TaskView:
        """Return a snapshot for other threads."""
        read_to = {self.partition: max(self.position, self.end_reached)} if self.batch else {}
        return TaskView(str(self.partition), self.state.value, read_to)


class PositionClaims:
    """The positions of one process in one database.

    Args:
        store: the database.
        policy: the patience.
        begin: returns the offsets at which claimed partitions resume or start.
        late: topics whose partitions start at their end.
        publish: called with positions that are known to be in the database.
        counts: counters of the process.
        measures: figures of the process.
        clock: seconds, monotonic.
        chance: a number from 0 to 1, for the pauses.
        logger: of structlog.
    """

    def __init__(
        self,
        store: RowStore,
        policy: ClaimPolicy,
        begin: Begin,
        *,
        late: Collection[str] = (),
        publish: Callable[[Sequence[Position]], None] = lambda _: None,
        counts: WorkerCounts | None = None,
        measures: Measures | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        logger: Any = None,
    ) -> None:
        self.tasks: dict[TopicPartition, PartitionTask] = {}
        self._store = store
        self._policy = policy
        self._begin = begin
        self._late = late
        self._publish = publish
        self._counts = counts or WorkerCounts()
        self._measures = measures or Measures()
        self._clock = clock
        self._events = logger or structlog.get_logger("eosframework.tables")
        self._outage = Outage(
            longest_pause_seconds=policy.longest_pause_seconds,
            clock=clock,
            chance=chance,
            logger=self._events,
        )

    def add(self, partition: TopicPartition, maker: RowMaker) -> PartitionTask:
        """Add a partition, unclaimed."""
        task = self.tasks[partition] = PartitionTask(partition, maker)
        return task

    def release(self, tasks: Iterable[PartitionTask]) -> None:
        """Remove partitions; a batch that is not written is gone."""
        for task in tasks:
            task.state = TaskState.CLOSED
            del self.tasks[task.partition]

    @property
    def unavailable(self) -> str | None:
        """The system that a position waits for, as a sentence; None: all positions are held."""
        waits = any(not task.is_held for task in self.tasks.values())
        return self._outage.unavailable if waits else None

    # --- the claim: P1, P2 --------------------------------------------------------------

    def wait_seconds(self) -> float:
        """Return the time until the next claim is due; 0 if one is due or none is needed."""
        now = self._clock()
        pauses = [t.claim_at - now for t in self.tasks.values() if not t.is_held]
        return max(0.0, self._outage.remaining_seconds(), min(pauses, default=0.0))

    def claim_due(self) -> list[PartitionTask]:
        """Claim the positions whose pause is over (P1, P2); return those that are held now.

        Raises:
            InstanceFenced: a successor has a position.
            RunError: the patience is over, or the position is unusable.
        """
        now = self._clock()
        due = [task for task in self.tasks.values() if not task.is_held and now >= task.claim_at]
        if not due or not self._outage.is_due():
            return []
        try:
            claims = self._store.claim([task.partition for task in due])
            failpoints.hit("table_writer.after_claim")
            offsets = self._begin(claims)
            claims = self._with_starts(claims, offsets)
        except Superseded as error:
            self._superseded([t for t in due if t.partition in error.partitions], error)
            return []
        except (DatabaseUnavailable, TransactionError) as error:
            self._lost(due, Outcome.UNAVAILABLE, error)
            return []
        doubts = [task for task in due if task.in_doubt]
        confirmed = [self._claimed(t, c, offsets) for t, c in zip(due, claims, strict=True)]
        # A claim succeeds in a database that refuses each write, for example on a full disk: after
        # an unwritten batch only the next write ends the outage.
        if not doubts or any(confirmed):
            self._outage.over()
        if known := [
            Position(*c.partition, c.next_offset) for c in claims if c.next_offset is not None
        ]:
            self._publish(known)
        return due

    def _claimed(
        self, task: PartitionTask, claim: Claim, offsets: Mapping[TopicPartition, int]
    ) -> bool:
        """Begin a batch; return whether the claim shows that the batch in doubt was written."""
        offset = offsets[task.partition]
        confirmed = task.confirmed_batch(claim)
        if confirmed is not None:
            self._count(*confirmed)
            task.superseded = 0
        task.in_doubt = None
        task.turn(Outcome.CLAIMED)
        task.begin(claim, offset)
        self._events.info(
            "partition_claimed", partition=str(task.partition), epoch=claim.epoch, offset=offset
        )
        return confirmed is not None

    def _with_starts(
        self, claims: Sequence[Claim], offsets: Mapping[TopicPartition, int]
    ) -> list[Claim]:
        """Write the positions of partitions that start at their end; return the updated claims.

        Raises:
            DatabaseUnavailable, Superseded: claim again, which shows whether they are written.
        """
        kept = [
            claim
            if claim.next_offset is not None or claim.partition.topic not in self._late
            else replace(claim, next_offset=offsets[claim.partition])
            for claim in claims
        ]
        pairs = zip(claims, kept, strict=True)
        if new := [Batch(was, offsets[was.partition], []) for was, now in pairs if was is not now]:
            self._store.write(new)
        return kept

    # --- writing: P3, P4 ----------------------------------------------------------------

    def write(self, tasks: Sequence[PartitionTask]) -> None:
        """Write all pending batches in one transaction and decide the outcome (P3, P4).

        Positions of a lost claim are no longer held afterwards.

        Raises:
            RecordFailed: a record gives no row, or its row is refused; earlier rows are written.
            InstanceFenced: a successor has a position.
            RunError: the patience is over, or the database refuses each transaction.
        """
        pending = [task for task in tasks if task.has_progress]
        while pending:
            try:
                self._write_once(pending)
            except Superseded as error:
                gone = [task for task in pending if task.partition in error.partitions]
                self._superseded(gone, error)
                pending = [task for task in pending if task not in gone]
                continue
            except RowRefused as error:
                [refused] = [task for task in pending if task.partition == error.partition]
                refused.turn(Outcome.REFUSED)
                refused.refuse(error)
                continue
            except DatabaseUnavailable as error:
                self._lost(pending, Outcome.UNKNOWN, error)
            break
        for task in tasks:
            if task.failure is not None:
                raise task.failure

    def _write_once(self, tasks: Sequence[PartitionTask]) -> None:
        batches = [task.batch for task in tasks if task.batch is not None]
        started = self._clock()
        written = self._store.write(batches)
        self._measures.commit_seconds.add(self._clock() - started)
        failpoints.hit("table_writer.after_commit")
        self._outage.over()
        self._counts.commits += 1
        self._counts.dead_letters += written.dead_letters
        self._counts.skipped += written.skipped
        for task, batch in zip(tasks, batches, strict=True):
            self._count(batch, task.records)
            task.turn(Outcome.WRITTEN)
            task.records = task.superseded = 0
            task.discarded_at = None
            task.begin(replace(batch.claim, next_offset=batch.next_offset), batch.next_offset)
        self._measures.transaction_records.add(sum(batch.size for batch in batches))
        self._publish([Position(*b.claim.partition, b.next_offset) for b in batches])

    def _count(self, batch: Batch, records: int) -> None:
        """Count records and rows that are in the tables."""
        self._counts.records += records
        self._measures.read[batch.claim.partition.topic] += records
        for rows in batch.tables:
            self._measures.written[rows.table.table] += len(rows.rows)

    # --- a lost claim -------------------------------------------------------------------

    def discard(self, task: PartitionTask, error: SchemaRegistryUnavailable) -> None:
        """Discard a position's unwritten rows, which cannot be made yet, and claim it again later.

        Raises:
            RunError: the patience is over.
        """
        task.turn(Outcome.DISCARDED)
        task.claim_at = self._clock() + _SCHEMAS_PAUSE_SECONDS
        self._events.warning(
            "schema_registry_unavailable", partition=str(task.partition), error=str(error)
        )
        if task.discarded_at is None:
            task.discarded_at = self._clock()
        self._end_patience([task], "schema registry", self._clock() - task.discarded_at, error)

    def ask(self, look: Callable[[], Answer]) -> Answer:
        """Call a function that reads the database, with the patience of a claim.

        Raises:
            DatabaseUnavailable: of the function; the pause before the next call is `wait_seconds`.
            RunError: the patience is over.
        """
        try:
            answer = look()
        except DatabaseUnavailable as error:
            self._lost((), Outcome.UNAVAILABLE, error)
            raise
        self._outage.over()
        return answer

    def _lost(self, tasks: Sequence[PartitionTask], outcome: Outcome, error: EosError) -> None:
        """Drop claims after a call without an answer; the next claim shows what it did."""
        self._counts.database_retries += isinstance(error, DatabaseUnavailable)
        for task in tasks:
            task.turn(outcome)
        self._outage.failed(error)
        system = "database" if isinstance(error, DatabaseUnavailable) else "cluster"
        self._end_patience(tasks, system, self._outage.lasted_seconds, error)

    def _end_patience(
        self, tasks: Sequence[PartitionTask], system: str, seconds: float, error: EosError
    ) -> None:
        patience_seconds = self._policy.patience_seconds
        if patience_seconds is None or seconds < patience_seconds:
            return
        names = ", ".join(str(task.partition) for task in tasks or self.tasks.values())
        raise RunError(
            f"{names}: the {system} stayed unavailable for {patience_seconds:g} s ({error}); "
            f"{self._policy.resume}"
        ) from error

    def _superseded(self, tasks: Sequence[PartitionTask], error: Superseded) -> None:
        """Drop positions that successors have claimed."""
        for task in tasks:
            self._counts.fences += 1
            task.superseded += 1
            self._events.warning("partition_overtaken", partition=str(task.partition))
            if task.superseded >= self._policy.superseded_in_a_row:
                self._fenced(task, error)
            task.turn(Outcome.SUPERSEDED)
            task.claim_at = self._clock() + self._policy.superseded_pause_seconds

    def _fenced(self, task: PartitionTask, error: Superseded) -> NoReturn:
        times = task.superseded
        often = "" if times == 1 else f" {times} times in a row without a rebalance"
        raise InstanceFenced(
            f"{task.partition} was claimed by another process{often}: {self._policy.successor}"
        ) from error
