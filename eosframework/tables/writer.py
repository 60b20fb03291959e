"""The persister's worker: one consumer, one database, a task for each partition.

    P1. claim: raise the epoch of a partition's position and read it, in one statement
    P2. seek to it; a partition without one starts where the application starts. Is that its end, it
        is written at once: the end is another one whenever it is asked for
    P3. make rows of what is fetched
    P4. write: rows, and each position where epoch and offset are still those of the claim, in
        one database transaction
    P5. decide what the outcome was

    UNCLAIMED ──P1, P2──▶ RUNNING ──▶ CLOSED
        ▲                    │
        └── away, overtaken ─┘

    written      go on; tell the group, which nobody reads but displays of lag
    away         P1 again, with growing pauses: the claim waits for a transaction in doubt and so
                 says how it ended
    overtaken    nothing was written; the others' rows are written again without it. Claimed anew
                 after two heartbeats if the partition is still here by then
    refused      a row with `fail`: what comes before it is written, then the worker ends

A position is read by nothing but the claim: while a COMMIT is in doubt a plain SELECT shows the
value before it, and the same rows would be written twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from eosframework import failpoints
from eosframework.errors import (
    DatabaseAway,
    EosError,
    InstanceFenced,
    Overtaken,
    RecordFailed,
    RowRefused,
    SchemasAway,
    TransactionError,
)
from eosframework.processing.measurements import Measures
from eosframework.processing.plan import WorkerCounts
from eosframework.processing.ports import Fetched, InputLog, Purger
from eosframework.processing.transaction.commit_interval import CommitInterval
from eosframework.processing.worker_views import WorkerView
from eosframework.records import Position, TopicPartition
from eosframework.tables.claims import Starts, offsets_of
from eosframework.tables.row_conversion import RowMaker
from eosframework.tables.table_ports import Batch, Claim, RowStore
from eosframework.tables.table_task import PartitionTask, TaskState
from eosframework.topology.graph.graph import Persister

IDLE_SECONDS = 0.1
SCHEMAS_PAUSE_SECONDS = 1.0
BACKOFF_SECONDS = 0.2
OVERTAKEN_IN_A_ROW = 3
"""A partition overtaken this often without a write in between has a rival with the same name."""


@dataclass(frozen=True, slots=True)
class PersisterOptions:
    """How a persister runs.

    Args:
        batch_rows: so many rows are written without waiting for the interval.
        heartbeat_interval_seconds: of the group; an overtaken partition waits for two.
        longest_pause_seconds: between two attempts to reach a database that is away.
    """

    commit_interval_seconds: float
    longest_interval_seconds: float
    longest_pause_seconds: float
    heartbeat_interval_seconds: float
    batch_records: int
    batch_rows: int
    leave_on_stop: bool


class PersisterWorker:
    """Runs the cycle until it is told to stop.

    Args:
        persisters: what to carry.
        log: a member of the persisters' group, whose committed offsets are never read.
        store: the database.
        tell_group: told how far the database is, after each claim and each write; may show it to
            the group later or not at all.
        purger: told how far the application's own topics are in the database; None: their records
            stay.
        start: of partitions that were never written: their first offsets, or their last.
        late: topics whose partitions start at their last offset.
    """

    def __init__(
        self,
        application: str,
        persisters: Sequence[Persister],
        log: InputLog,
        store: RowStore,
        options: PersisterOptions,
        *,
        start: Starts,
        late: Collection[str] = (),
        tell_group: Callable[[Sequence[Position]], None],
        purger: Purger | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_round: Callable[[WorkerCounts], None] | None = None,
    ) -> None:
        self.counts = WorkerCounts()
        self.tasks: dict[TopicPartition, PartitionTask] = {}
        self._measures = Measures()
        self._makers = {persister.topic: RowMaker(persister) for persister in persisters}
        self._log = log
        self._store = store
        self._options = options
        self._start = start
        self._late = late
        self._tell_group = tell_group
        self._purger = purger
        self._own_topics = {p.topic for p in persisters if p.sub_topology is not None}
        self._clock = clock
        self._on_round = on_round
        self._pace = CommitInterval(
            options.commit_interval_seconds, options.longest_interval_seconds, clock
        )
        self._is_behind = False
        self._away_since: float | None = None
        self._stop = False
        self._was_assigned = False
        self._is_in_rebalance = False
        self._ends: dict[TopicPartition, int] | None = None
        self._events = structlog.get_logger("eosframework.persister").bind(application=application)

    def stop(self) -> None:
        """Ask the worker to write what is complete and return; safe in a signal handler."""
        self._stop = True

    def view(self) -> WorkerView:
        """Return what there is to see of this worker now; on the main thread."""
        tasks = tuple(task.view() for task in self.tasks.values())
        away = None if self._away_since is None else "the database is away"
        measured = self._measures.snapshot()
        return WorkerView(self._snapshot(), tasks, self._was_assigned, measured, away)

    def run(self, *, until_caught_up: bool = False) -> WorkerCounts:
        """Consume and write until `stop`.

        Args:
            until_caught_up: also stop once every partition this worker was given is read to
                the end it had at the start.

        Raises:
            RunError: writing cannot go on; what was complete is written.
            InstanceFenced: another process keeps claiming this one's partitions.
        """
        topics = sorted(self._makers)
        if until_caught_up:
            self._ends = self._log.end_offsets(self._log.partitions(topics))
        self._log.subscribe(topics, self)
        try:
            while not self._stop and not self._is_caught_up():
                self._turn()
            self._write(list(self.tasks.values()))
        except BaseException as error:
            self._close_after(error)
            raise
        self._close()
        return self.counts

    # --- partitions come and go: called inside the consumer's callbacks -----------------

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        """Take partitions in, paused; they are claimed outside the callback (P1)."""
        self._was_assigned, self._is_in_rebalance = True, False
        for partition in sorted(partitions):
            self.tasks[partition] = PartitionTask(partition, self._makers[partition.topic])
        return [Position(*partition, None) for partition in partitions]

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Write what is complete and let partitions go."""
        self._is_in_rebalance = True
        leaving = [self.tasks[p] for p in partitions if p in self.tasks]
        failpoints.hit("persister.before_revoke")
        self._write(leaving)
        self._release(leaving, "partitions_revoked")

    def lost(self, partitions: list[TopicPartition]) -> None:
        """Let partitions go without a write: another worker may own them already."""
        self._is_in_rebalance = True
        self._release([self.tasks[p] for p in partitions if p in self.tasks], "partitions_lost")

    def _release(self, tasks: Sequence[PartitionTask], event: str) -> None:
        for task in tasks:
            task.state = TaskState.CLOSED
            del self.tasks[task.partition]
            self._events.info(event, partition=str(task.partition))

    # --- one turn of the cycle ----------------------------------------------------------

    def _turn(self) -> None:
        self._claim_due()
        self._take_in()
        full = sum(t.batch.size for t in self.tasks.values() if t.batch) >= self._options.batch_rows
        failed = any(task.failure for task in self.tasks.values())
        if full or failed or self._pace.is_due():
            self._write(list(self.tasks.values()))
        if self._on_round is not None:
            self._on_round(self._snapshot())

    def _claim_due(self) -> None:
        """Claim what has no claim, as soon as it may be tried (P1, P2)."""
        now = self._clock()
        due = [
            task
            for task in self.tasks.values()
            if task.state is TaskState.UNCLAIMED and now >= task.claim_at
        ]
        if not due:
            return
        try:
            claims = self._store.claim([task.partition for task in due])
            failpoints.hit("persister.after_claim")
            offsets = offsets_of(claims, self._log, self._start)
            claims = self._with_starts(claims, offsets)
        except (DatabaseAway, Overtaken, TransactionError) as error:
            self._claim_later(due, error)
            return
        self._database_is_back()
        self._log.seek([Position(*p, offset) for p, offset in offsets.items()])
        for task, claim in zip(due, claims, strict=True):
            if written := task.turned_out_written(claim):
                self._count(*written)
            task.begin(claim, offsets[claim.partition])
            task.state, task.attempts = TaskState.RUNNING, 0
            self._events.info(
                "partition_claimed",
                partition=str(task.partition),
                epoch=claim.epoch,
                offset=offsets[claim.partition],
            )
        self._log.resume([task.partition for task in due])
        if known := [claim for claim in claims if claim.next_offset is not None]:
            self._tell([Position(*claim.partition, claim.next_offset) for claim in known])

    def _with_starts(
        self, claims: Sequence[Claim], offsets: Mapping[TopicPartition, int]
    ) -> list[Claim]:
        """Write where partitions start that start at their end, and return the claims with it.

        Raises:
            DatabaseAway, Overtaken: claim again, which tells what is written.
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

    def _take_in(self) -> None:
        """Fetch and make rows (P3)."""
        busy = any(task.has_progress for task in self.tasks.values())
        wait_seconds = self._pace.remaining_seconds() if busy else IDLE_SECONDS
        limit = self._options.batch_records
        fetched = self._log.fetch(limit, wait_seconds)
        self._is_behind = sum(map(len, fetched.messages.values())) >= limit
        self._distribute(fetched)

    def _distribute(self, fetched: Fetched) -> None:
        for partition, messages in fetched.messages.items():
            task = self.tasks.get(partition)
            if task is None or task.batch is None or task.failure is not None:
                continue
            try:
                task.maker.add(messages, task.batch)
            except SchemasAway as error:
                self._schemas_away(task, error)
                continue
            except RecordFailed as error:
                task.failure, task.batch = error, task.batch.up_to(error.offset)
            task.records += len(messages)
        for partition, offset in fetched.ends.items():
            task = self.tasks.get(partition)
            if task is not None and task.state is TaskState.RUNNING:
                task.end_reached = offset

    # --- writing ------------------------------------------------------------------------

    def _write(self, tasks: Sequence[PartitionTask]) -> None:
        """Write everything that waits, in one transaction, and decide what follows (P4, P5).

        Raises:
            RecordFailed: of the record that gives no row, or whose row is refused.
        """
        open_ = [task for task in tasks if task.has_progress]
        started = self._clock()
        while open_:
            try:
                self._write_once(open_)
            except Overtaken as error:
                open_ = self._overtaken(open_, error)
                continue
            except RowRefused as error:
                self._cut(open_, error)
                continue
            except DatabaseAway as error:
                for task in open_:
                    task.in_doubt = (task.batch, task.records) if task.batch else None
                self._claim_later(open_, error)
            break
        if stretched := self._pace.round_took(self._clock() - started, backlog=self._is_behind):
            self._events.warning("commit_interval_stretched", seconds=round(stretched, 3))
        for task in tasks:
            if task.failure is not None:
                raise task.failure

    def _write_once(self, tasks: Sequence[PartitionTask]) -> None:
        batches = [task.batch for task in tasks if task.batch is not None]
        started = self._clock()
        written = self._store.write(batches)
        self._measures.commit_seconds.add(self._clock() - started)
        failpoints.hit("persister.after_commit")
        self.counts.commits += 1
        self.counts.dead_letters += written.dead_letters
        self.counts.skipped += written.skipped
        for task, batch in zip(tasks, batches, strict=True):
            self._count(batch, task.records)
            task.records = task.overtaken = 0
            task.begin(replace(batch.claim, next_offset=batch.next_offset), batch.next_offset)
        self._measures.transaction_records.add(sum(batch.size for batch in batches))
        self._tell([Position(*b.claim.partition, b.next_offset) for b in batches])

    def _tell(self, positions: Sequence[Position]) -> None:
        """Say how far the database is: to who looks at the group, and to make room in Kafka."""
        self._tell_group(positions)
        if self._purger is not None:
            self._purger.committed([p for p in positions if p.topic in self._own_topics])

    def _count(self, batch: Batch, records: int) -> None:
        """Count what is in the tables."""
        self.counts.records += records
        self._measures.read[batch.claim.partition.topic] += records
        for rows in batch.tables:
            self._measures.written[rows.table.table] += len(rows.rows)

    def _overtaken(self, tasks: Sequence[PartitionTask], error: Overtaken) -> list[PartitionTask]:
        """Let go what others claimed; return what is still this process's."""
        gone = [task for task in tasks if task.partition in error.partitions]
        for task in gone:
            self.counts.fences += 1
            task.overtaken += 1
            self._events.warning("partition_overtaken", partition=str(task.partition))
            if task.overtaken >= OVERTAKEN_IN_A_ROW:
                raise InstanceFenced(
                    f"{task.partition} was claimed by another process {task.overtaken} times in "
                    f"a row without a rebalance: another application of this name writes into "
                    f"the same database. Stop it, or give one of them another name"
                ) from error
            task.drop(self._clock() + 2 * self._options.heartbeat_interval_seconds)
        self._log.pause([task.partition for task in gone])
        return [task for task in tasks if task not in gone]

    def _cut(self, tasks: Sequence[PartitionTask], error: RowRefused) -> None:
        """Leave out the refused row's record and what comes after it."""
        [task] = [task for task in tasks if task.partition == error.partition]
        assert task.batch is not None
        task.batch = task.batch.up_to(error.offset)
        task.failure = RecordFailed(str(error), offset=error.offset)

    def _claim_later(self, tasks: Sequence[PartitionTask], error: EosError) -> None:
        """Forget what was not certainly written; what is claimed again tells how it ended."""
        now = self._clock()
        self.counts.database_retries += isinstance(error, DatabaseAway)
        for task in tasks:
            task.attempts += 1
            pause_seconds = min(
                BACKOFF_SECONDS * 2 ** min(task.attempts, 16), self._options.longest_pause_seconds
            )
            task.drop(now + (pause_seconds if task.attempts > 1 else 0))
        self._log.pause([task.partition for task in tasks])
        if self._away_since is None:
            self._away_since = now
            self._events.warning("database_away", error=str(error))

    def _schemas_away(self, task: PartitionTask, error: SchemasAway) -> None:
        """Forget what was not written; it is read again after a pause."""
        task.drop(self._clock() + SCHEMAS_PAUSE_SECONDS)
        self._log.pause([task.partition])
        self._events.warning("schemas_away", partition=str(task.partition), error=str(error))

    def _database_is_back(self) -> None:
        if self._away_since is not None:
            seconds = round(self._clock() - self._away_since, 1)
            self._events.info("database_back", after_seconds=seconds)
            self._away_since = None

    # --- the end ------------------------------------------------------------------------

    def _is_caught_up(self) -> bool:
        """Tell whether it is all written; what was let go a moment ago may come back unwritten."""
        if self._ends is None or not self._was_assigned or self._is_in_rebalance:
            return False
        return all(
            task.state is TaskState.RUNNING
            and not task.has_progress
            and max(task.position, task.end_reached) >= self._ends.get(partition, 0)
            for partition, task in self.tasks.items()
        )

    def _snapshot(self) -> WorkerCounts:
        tasks = self.tasks.values()
        return replace(
            self.counts,
            records=self.counts.records + sum(task.records for task in tasks),
            skipped=self.counts.skipped + sum(m.skipped for m in self._makers.values()),
            dead_letters=self.counts.dead_letters
            + sum(m.dead_letters for m in self._makers.values()),
            lag=self._log.lag({t.partition: t.position for t in tasks if t.may_have_more}),
        )

    def _close_after(self, error: BaseException) -> None:
        """Write what is complete and close, without hiding `error`."""
        try:
            if isinstance(error, EosError):
                self._write([task for task in self.tasks.values() if task.failure is None])
        except EosError as second:
            self._events.warning("last_write_failed", error=str(second))
        try:
            self._close()
        except EosError as second:
            self._events.warning("close_failed", error=str(second))

    def _close(self) -> None:
        self._release(list(self.tasks.values()), "partition_released")
        self._store.close()
        self._log.close(leave=self._options.leave_on_stop)
        if self._purger is not None:
            self._purger.close()
