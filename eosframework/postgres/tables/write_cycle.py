"""The table writer's cycle: one consumer, one database connection, one task per partition.

    1. claim positions and seek to them (`position_claims`, P1 and P2)
    2. fetch records and convert them to rows
    3. write rows and positions in one transaction, when the interval is over or enough rows wait
       (P3 and P4)
    4. commit to the consumer group, for lag monitoring only

A partition whose claim is lost is paused until it is claimed again; the others continue.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from eosframework.engine.task.measurements import Measures
from eosframework.engine.worker.commit_interval import CommitInterval
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.engine.worker.worker_views import WorkerView
from eosframework.errors import (
    EosError,
    IdentityChanged,
    PositionLost,
    RunError,
    SchemaRegistryUnavailable,
)
from eosframework.postgres.tables.position_claims import ClaimPolicy, PartitionTask, PositionClaims
from eosframework.postgres.tables.table_ports import Claim, RowMaker, RowStore
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import TableSink
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Fetched, Identities, InputLog, Purger

IDLE_SECONDS = 0.1
SUPERSEDED_IN_A_ROW = 3
"""Number of times that a partition may be superseded without a write in between. More of them mean
that another application with the same name writes to the database."""

StartOffsets = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns the start offsets of partitions that were never written."""


@dataclass(frozen=True, slots=True)
class TableWriterOptions:
    """Options of a table writer; see the settings of the same names.

    Args:
        longest_interval_seconds: upper bound when a slow database stretches the commit interval.
        batch_rows: number of rows that are written without waiting for the interval.
        heartbeat_interval_seconds: of the group; a superseded partition waits for two.
        longest_pause_seconds: between two attempts to reach an unavailable database.
    """

    commit_interval_seconds: float
    longest_interval_seconds: float
    longest_pause_seconds: float
    heartbeat_interval_seconds: float
    batch_records: int
    batch_rows: int
    leave_on_stop: bool

    @property
    def claim_policy(self) -> ClaimPolicy:
        """Patience without limit: a table writer keeps its place in the group."""
        return ClaimPolicy(
            longest_pause_seconds=self.longest_pause_seconds,
            patience_seconds=None,
            resume="",
            superseded_pause_seconds=2 * self.heartbeat_interval_seconds,
            superseded_in_a_row=SUPERSEDED_IN_A_ROW,
            successor="another application of this name writes into the same database. Stop it, "
            "or give one of them another name",
        )


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
        identities: compares topics with those of the start; None: they cannot change.
        clock: monotonic, in seconds.
        chance: a number from 0 to 1, for the pauses of an outage.
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
        identities: Identities | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        on_round: Callable[[WorkerCounts], None] | None = None,
    ) -> None:
        self.counts = WorkerCounts()
        self._measures = Measures()
        self._makers = {sink.topic: RowMaker(sink) for sink in sinks}
        self._log = log
        self._store = store
        self._options = options
        self._start = start
        self._commit_to_group = commit_to_group
        self._purger = purger
        self._identities = identities
        self._claimed: list[PartitionTask] = []
        self._internal_topics = {s.topic for s in sinks if s.sub_topology is not None}
        self._clock = clock
        self._on_round = on_round
        self._pace = CommitInterval(
            options.commit_interval_seconds, options.longest_interval_seconds, clock
        )
        self._is_behind = False
        self._stop = False
        self._was_assigned = False
        self._is_in_rebalance = False
        self._ends: dict[TopicPartition, int] | None = None
        self._events = structlog.get_logger("eosframework.tables").bind(application=application)
        self._claims = PositionClaims(
            store,
            options.claim_policy,
            self._begin,
            late=late,
            publish=self._publish_positions,
            counts=self.counts,
            measures=self._measures,
            clock=clock,
            chance=chance,
            logger=self._events,
        )
        self.tasks = self._claims.tasks

    def stop(self) -> None:
        """Ask the worker to write what is complete and return; safe in a signal handler."""
        self._stop = True

    def view(self) -> WorkerView:
        """Return a snapshot for other threads; called on the main thread."""
        tasks = tuple(task.view() for task in self.tasks.values())
        measured = self._measures.snapshot()
        unavailable = self._claims.unavailable
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
            while not self._stop and not (self._is_caught_up() and self._are_confirmed()):
                self._turn()
            if self._stop:
                self._are_confirmed()
            self._write(list(self.tasks.values()))
        except BaseException as error:
            try:
                if isinstance(error, RunError):
                    self._are_confirmed()
            except IdentityChanged as changed:
                self._close_after(changed)
                raise
            self._close_after(error)
            raise
        self._close()
        return self.counts

    # --- partitions come and go: called inside the consumer's callbacks -----------------

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        """Add partitions, paused; they are claimed outside the callback."""
        self._was_assigned, self._is_in_rebalance = True, False
        for partition in sorted(partitions):
            self._claims.add(partition, self._makers[partition.topic])
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
        self._claims.release(tasks)
        for task in tasks:
            self._events.info(event, partition=str(task.partition))

    # --- one turn of the cycle ----------------------------------------------------------

    def _turn(self) -> None:
        self._claim_due()
        self._fetch()
        full = sum(t.batch.size for t in self.tasks.values() if t.batch) >= self._options.batch_rows
        failed = any(task.failure for task in self.tasks.values())
        if full or failed or self._pace.is_due():
            self._write(list(self.tasks.values()))
        if self._identities is not None:
            self._identities.turn(self._positions)
        if self._on_round is not None:
            self._on_round(self._snapshot())

    def _claim_due(self) -> None:
        """Claim the unclaimed partitions whose pause is over, and seek to their positions.

        The topics are compared between the two, as in a worker's T5.
        """
        self._claimed = [t for t in self._claimed if self._is_waiting(t)] + self._claims.claim_due()
        if self._claimed and self._are_confirmed():
            claimed, self._claimed = self._claimed, []
            self._log.seek([Position(*task.partition, task.position) for task in claimed])
            self._log.resume([task.partition for task in claimed])

    def _is_waiting(self, task: PartitionTask) -> bool:
        """Return whether a claimed partition is still this one's, and was not read yet."""
        return task.is_held and self.tasks.get(task.partition) is task

    def _are_confirmed(self) -> bool:
        """Compare topics with those of the start; return False if the brokers do not answer."""
        return self._identities is None or self._identities.confirm(self._positions)

    def _positions(self) -> dict[TopicPartition, int]:
        return {task.partition: task.position for task in self.tasks.values() if task.is_held}

    def _begin(self, claims: Sequence[Claim]) -> Mapping[TopicPartition, int]:
        return _offsets_of(claims, self._log, self._start)

    def _fetch(self) -> None:
        """Fetch records and convert them to rows."""
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
                task.add(messages)
            except SchemaRegistryUnavailable as error:
                self._claims.discard(task, error)
                self._log.pause([partition])
        for partition, error in fetched.unreadable.items():
            task = self.tasks.get(partition)
            if task is not None and task.batch is not None and task.failure is None:
                task.failure = error
        for partition, offset in fetched.ends.items():
            task = self.tasks.get(partition)
            if task is not None and task.is_held:
                task.reached_end(offset)

    # --- writing ------------------------------------------------------------------------

    def _write(self, tasks: Sequence[PartitionTask]) -> None:
        """Write all pending batches in one transaction, and pause partitions of lost claims.

        Raises:
            RecordFailed: names the record that gives no row, or whose row is refused.
        """
        held = [task for task in tasks if task.is_held]
        started = self._clock()
        self._claims.write(held)
        if stretched := self._pace.round_took(self._clock() - started, backlog=self._is_behind):
            self._events.warning("commit_interval_stretched", seconds=round(stretched, 3))
        if lost := [task.partition for task in held if not task.is_held]:
            self._log.pause(lost)

    def _publish_positions(self, positions: Sequence[Position]) -> None:
        """Commit positions to the group for monitoring, and purge written internal records."""
        self._commit_to_group(positions)
        if self._purger is not None:
            self._purger.committed([p for p in positions if p.topic in self._internal_topics])

    # --- the end ------------------------------------------------------------------------

    def _is_caught_up(self) -> bool:
        """Return whether all is written; False in a rebalance, which may return unwritten ones."""
        if self._ends is None or not self._was_assigned or self._is_in_rebalance:
            return False
        return all(
            task.is_held
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
            if isinstance(error, EosError) and not isinstance(error, IdentityChanged):
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
