"""The table writer's cycle: one consumer, one database connection, one task per partition.

    P1. claim: increment the epoch of a partition's position and read it, in one statement
    P2. seek to the position; a partition without one starts where the application starts. If that
        is the partition's end, the position is written at once, because the end moves
    P3. fetch records and convert them to rows
    P4. write rows and positions in one database transaction, which requires that each position's
        epoch and offset are still those of the claim
    P5. decide the outcome

    UNCLAIMED ──P1, P2──▶ RUNNING ──▶ CLOSED
        ▲                        │
        └ unavailable, overtaken ┘

    written      continue; commit to the consumer group, for lag monitoring only
    unavailable  P1 again with growing pauses: the claim waits for a transaction in doubt, so its
                 result shows the outcome
    overtaken    nothing was written; the other partitions' rows are written again without this
                 one, which is claimed again after two heartbeats if it is still assigned
    refused      a row with `fail`: the rows of earlier records are written, then the worker ends

Only the claim reads a position. While a COMMIT is in doubt, a plain SELECT shows the previous
value, and the same rows would be written twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from eosframework import failpoints
from eosframework.errors import (
    DatabaseUnavailable,
    EosError,
    InstanceFenced,
    PositionLost,
    RecordFailed,
    RowRefused,
    SchemaRegistryUnavailable,
    Superseded,
    TransactionError,
)
from eosframework.processing.measurements import Measures
from eosframework.processing.ports import Fetched, InputLog, Purger
from eosframework.processing.transaction.commit_interval import CommitInterval
from eosframework.processing.worker_plan import WorkerCounts
from eosframework.processing.worker_views import WorkerView
from eosframework.records import Position, TopicPartition
from eosframework.tables.row_conversion import RowMaker
from eosframework.tables.table_ports import Batch, Claim, RowStore
from eosframework.tables.table_task import PartitionTask, TaskState
from eosframework.topology.graph.graph import TableSink

IDLE_SECONDS = 0.1
SCHEMAS_PAUSE_SECONDS = 1.0
BACKOFF_SECONDS = 0.2
OVERTAKEN_IN_A_ROW = 3
"""Number of times that a partition may be overtaken without a write in between. More of them mean
that another application with the same name writes to the database."""

StartOffsets = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns the start offsets of partitions that were never written."""


@dataclass(frozen=True, slots=True)
class TableWriterOptions:
    """Options of a table writer; see the settings of the same names.

    Args:
        longest_interval_seconds: upper bound when a slow database stretches the commit interval.
        batch_rows: number of rows that are written without waiting for the interval.
        heartbeat_interval_seconds: of the group; an overtaken partition waits for two.
        longest_pause_seconds: between two attempts to reach an unavailable database.
    """

    commit_interval_seconds: float
    longest_interval_seconds: float
    longest_pause_seconds: float
    heartbeat_interval_seconds: float
    batch_records: int
    batch_rows: int
    leave_on_stop: bool


class TableWriter:
    """Runs the cycle until `stop`.

    Args:
        application: the application's name.
        sinks: the table sinks.
        log: a consumer in the table writers' group, whose committed offsets are never read.
        store: the database.
        options: of the table writer.
        start: returns the start offsets of partitions that were never written.
        late: topics whose partitions start at their end.
        commit_to_group: commits positions to the group, for lag monitoring only; called after each
            claim and each write.
        purger: deletes records of internal topics that are in the database; None: they stay.
        clock: monotonic, in seconds.
        on_round: called with the counts after each turn.
    """

    def __init__(
        self,
        application: str,
        sinks: Sequence[TableSink],
        log: InputLog,
        store: RowStore,
        options: TableWriterOptions,
        *,
        start: StartOffsets,
        late: Collection[str] = (),
        commit_to_group: Callable[[Sequence[Position]], None],
        purger: Purger | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_round: Callable[[WorkerCounts], None] | None = None,
    ) -> None:
        self.counts = WorkerCounts()
        self.tasks: dict[TopicPartition, PartitionTask] = {}
        self._measures = Measures()
        self._makers = {sink.topic: RowMaker(sink) for sink in sinks}
        self._log = log
        self._store = store
        self._options = options
        self._start = start
        self._late = late
        self._commit_to_group = commit_to_group
        self._purger = purger
        self._internal_topics = {s.topic for s in sinks if s.sub_topology is not None}
        self._clock = clock
        self._on_round = on_round
        self._pace = CommitInterval(
            options.commit_interval_seconds, options.longest_interval_seconds, clock
        )
        self._is_behind = False
        self._unavailable_since: float | None = None
        self._stop = False
        self._was_assigned = False
        self._is_in_rebalance = False
        self._ends: dict[TopicPartition, int] | None = None
        self._events = structlog.get_logger("eosframework.tables").bind(application=application)

    def stop(self) -> None:
        """Ask the worker to write what is complete and return; safe in a signal handler."""
        self._stop = True

    def view(self) -> WorkerView:
        """Return a snapshot for other threads; called on the main thread."""
        tasks = tuple(task.view() for task in self.tasks.values())
        unavailable = None if self._unavailable_since is None else "the database is unavailable"
        measured = self._measures.snapshot()
        return WorkerView(self._snapshot(), tasks, self._was_assigned, measured, unavailable)

    def run(self, *, until_caught_up: bool = False) -> WorkerCounts:
        """Consume and write until `stop`.

        Args:
            until_caught_up: also stop once every assigned partition is read to the end that it
                had at the start.

        Raises:
            RunError: writing cannot continue; complete batches are written.
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
        """Add partitions, paused; they are claimed outside the callback (P1)."""
        self._was_assigned, self._is_in_rebalance = True, False
        for partition in sorted(partitions):
            self.tasks[partition] = PartitionTask(partition, self._makers[partition.topic])
        return [Position(*partition, None) for partition in partitions]

    def revoked(self, partitions: list[TopicPartition]) -> None:
        """Write complete batches and release the partitions."""
        self._is_in_rebalance = True
        leaving = [self.tasks[p] for p in partitions if p in self.tasks]
        failpoints.hit("table_writer.before_revoke")
        self._write(leaving)
        self._release(leaving, "partitions_revoked")

    def lost(self, partitions: list[TopicPartition]) -> None:
        """Release partitions without a write: another worker may own them already."""
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
        self._fetch()
        full = sum(t.batch.size for t in self.tasks.values() if t.batch) >= self._options.batch_rows
        failed = any(task.failure for task in self.tasks.values())
        if full or failed or self._pace.is_due():
            self._write(list(self.tasks.values()))
        if self._on_round is not None:
            self._on_round(self._snapshot())

    def _claim_due(self) -> None:
        """Claim the unclaimed partitions whose pause is over (P1, P2)."""
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
            failpoints.hit("table_writer.after_claim")
            offsets = _offsets_of(claims, self._log, self._start)
            claims = self._with_starts(claims, offsets)
        except (DatabaseUnavailable, Superseded, TransactionError) as error:
            self._claim_later(due, error)
            return
        self._report_available()
        self._log.seek([Position(*p, offset) for p, offset in offsets.items()])
        for task, claim in zip(due, claims, strict=True):
            # 1. A COMMIT got no answer, so the batch may be written. 2. The claim waited for that
            # transaction. 3. Its epoch follows the batch's only if no other process claimed in
            # between, and then its offset shows whether the batch was written.
            if written := task.confirmed_batch(claim):
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
        known = [Position(*c.partition, c.next_offset) for c in claims if c.next_offset is not None]
        if known:
            self._publish_positions(known)

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

    def _fetch(self) -> None:
        """Fetch records and convert them to rows (P3)."""
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
            except SchemaRegistryUnavailable as error:
                self._retry_without_schemas(task, error)
                continue
            except RecordFailed as error:
                task.failure, task.batch = error, task.batch.up_to(error.offset)
            task.records += len(messages)
        for partition, error in fetched.unreadable.items():
            task = self.tasks.get(partition)
            if task is not None and task.batch is not None and task.failure is None:
                task.failure = error
        for partition, offset in fetched.ends.items():
            task = self.tasks.get(partition)
            if task is not None and task.state is TaskState.RUNNING:
                task.end_reached = offset

    # --- writing ------------------------------------------------------------------------

    def _write(self, tasks: Sequence[PartitionTask]) -> None:
        """Write all pending batches in one transaction and handle the outcome (P4, P5).

        Raises:
            RecordFailed: names the record that gives no row, or whose row is refused.
        """
        open_ = [task for task in tasks if task.has_progress]
        started = self._clock()
        while open_:
            try:
                self._write_once(open_)
            except Superseded as error:
                open_ = self._drop_overtaken(open_, error)
                continue
            except RowRefused as error:
                self._drop_refused(open_, error)
                continue
            except DatabaseUnavailable as error:
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
        failpoints.hit("table_writer.after_commit")
        self.counts.commits += 1
        self.counts.dead_letters += written.dead_letters
        self.counts.skipped += written.skipped
        for task, batch in zip(tasks, batches, strict=True):
            self._count(batch, task.records)
            task.records = task.overtaken = 0
            task.begin(replace(batch.claim, next_offset=batch.next_offset), batch.next_offset)
        self._measures.transaction_records.add(sum(batch.size for batch in batches))
        self._publish_positions([Position(*b.claim.partition, b.next_offset) for b in batches])

    def _publish_positions(self, positions: Sequence[Position]) -> None:
        """Commit positions to the group for monitoring, and purge written internal records."""
        self._commit_to_group(positions)
        if self._purger is not None:
            self._purger.committed([p for p in positions if p.topic in self._internal_topics])

    def _count(self, batch: Batch, records: int) -> None:
        """Count records and rows that are in the tables."""
        self.counts.records += records
        self._measures.read[batch.claim.partition.topic] += records
        for rows in batch.tables:
            self._measures.written[rows.table.table] += len(rows.rows)

    def _drop_overtaken(
        self, tasks: Sequence[PartitionTask], error: Superseded
    ) -> list[PartitionTask]:
        """Drop partitions that others have claimed; return the remaining tasks."""
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

    def _drop_refused(self, tasks: Sequence[PartitionTask], error: RowRefused) -> None:
        """Remove the refused row's record and all later records from its batch."""
        [task] = [task for task in tasks if task.partition == error.partition]
        assert task.batch is not None
        task.batch = task.batch.up_to(error.offset)
        task.failure = RecordFailed(str(error), offset=error.offset)

    def _claim_later(self, tasks: Sequence[PartitionTask], error: EosError) -> None:
        """Drop claims after a failed call; the next claim shows whether a batch was written."""
        now = self._clock()
        self.counts.database_retries += isinstance(error, DatabaseUnavailable)
        for task in tasks:
            task.attempts += 1
            pause_seconds = min(
                BACKOFF_SECONDS * 2 ** min(task.attempts, 16), self._options.longest_pause_seconds
            )
            # The first retry is immediate: a single lost connection needs no pause.
            task.drop(now + (pause_seconds if task.attempts > 1 else 0))
        self._log.pause([task.partition for task in tasks])
        if self._unavailable_since is None:
            self._unavailable_since = now
            self._events.warning("database_unavailable", error=str(error))

    def _retry_without_schemas(self, task: PartitionTask, error: SchemaRegistryUnavailable) -> None:
        """Drop a task's unwritten rows; its records are read again after a pause."""
        task.drop(self._clock() + SCHEMAS_PAUSE_SECONDS)
        self._log.pause([task.partition])
        self._events.warning(
            "schema_registry_unavailable", partition=str(task.partition), error=str(error)
        )

    def _report_available(self) -> None:
        if self._unavailable_since is not None:
            seconds = round(self._clock() - self._unavailable_since, 1)
            self._events.info("database_available", after_seconds=seconds)
            self._unavailable_since = None

    # --- the end ------------------------------------------------------------------------

    def _is_caught_up(self) -> bool:
        """Return whether all is written; False in a rebalance, which may return unwritten ones."""
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


def _offsets_of(
    claims: Sequence[Claim], log: InputLog, start: StartOffsets
) -> dict[TopicPartition, int]:
    """Return the offsets at which claimed partitions resume or start.

    Args:
        claims: the partitions' positions in the database.
        log: gives the bounds of the partitions' logs.
        start: gives the start offsets of partitions that were never written.

    Raises:
        PositionLost: the log no longer contains the next offset.
        TransactionError: the brokers did not answer.
    """
    partitions = [claim.partition for claim in claims]
    firsts, ends = log.beginning_offsets(partitions), log.end_offsets(partitions)
    new = [claim.partition for claim in claims if claim.next_offset is None]
    offsets = dict(start(new)) if new else {}
    for claim in claims:
        if claim.next_offset is None:
            continue
        first, end = firsts[claim.partition], ends[claim.partition]
        if not first <= claim.next_offset <= end:
            raise _position_lost(claim.partition, claim.next_offset, first, end)
        offsets[claim.partition] = claim.next_offset
    return offsets


def _position_lost(partition: TopicPartition, position: int, first: int, end: int) -> PositionLost:
    if position < first:
        place, consequence, there = f"begins at {first}", "the offsets between are gone", first
    else:
        place, there = f"ends at {end}", end
        consequence = "it was cut short, and what comes next may be other records"
    return PositionLost(
        f"{partition}: the database holds what comes before offset {position}, and the log "
        f"{place}: {consequence}. To go on from there, stop all workers and run: eosframework "
        f"positions set APP --tables '{partition}={there}'"
    )
