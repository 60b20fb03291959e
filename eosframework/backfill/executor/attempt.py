"""One attempt of a backfill task: Spark may start it again, or twice at once, and it counts once.

    A1. a later attempt watches the first one; it goes on only where that is silent or has ended,
        and returns where everything is done meanwhile. Later is who has a later number, or finds
        one of the same run: where files of a shuffle are lost, Spark counts from 0 again
    A2. init the task's transactional.id: fences every other attempt, ends what it left open
    A3. read the task's progress, settled; return if it is complete; else say that one is here
    A4. start at its positions; bring the stores up to date from their changelogs
    A5. run: read from the positions on, or of rows skip those before; cut them into chunks by time
        and size
    A6. commit: outputs, changelogs and the progress in one transaction
    A7. decide what the outcome was
    A8. at the end of the rows: the last chunk, and that the task is complete, in one transaction

Of rows that Spark sorts all of it begins with the first one: an attempt that still waits for it
cannot show that it lives, and has nothing yet to be protected for.

What follows from an outcome (A7):

    clean         go on
    suspect       recycled already; the progress must be what was committed
    unknown       recycle; the progress tells whether it was committed
    abortable     abort; run the chunk again
    data refused  the same in halves, down to the record, which goes the way of `on_error`
    fenced        end: another attempt has the task. A transaction that outlasted its timeout is
                  fenced, too: go on if no other attempt shows

Progress lies in the registry, in the same transaction as the outputs, since group offsets expire.
Whoever has taken the id reads what is decided for good: no frame of another attempt counts any
more. Windows that live close because nothing comes for a while stay open: the clock says nothing
about history.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import structlog

from eosframework import failpoints
from eosframework.backfill.executor.attempt_context import Equipment, equipped
from eosframework.backfill.executor.chunk import Chunk, place_of
from eosframework.backfill.executor.counters import Tally
from eosframework.backfill.executor.ownership import Tenure, run_mark
from eosframework.backfill.executor.task_reader import Rows, reading
from eosframework.backfill.executor.task_spec import Work
from eosframework.backfill.job.job_entry import TaskProgress
from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    EosError,
    InstanceFenced,
    RunError,
    TransactionError,
)
from eosframework.processing.failures.failures import describe
from eosframework.processing.ports import Message
from eosframework.processing.stores.open_state import SHARE, ChangesBudget
from eosframework.processing.task import Task
from eosframework.processing.task_states import TaskState
from eosframework.processing.transaction.offsets import Progress
from eosframework.processing.transaction.overtime import RecordTimer
from eosframework.records import Position, TopicPartition

PIECE_RECORDS = 2000
"""Rows that are taken in at once, at most; a chunk that is full ends between two pieces."""

RESTORE_PAUSE_SECONDS = 0.01


def run_attempt(
    work: Work, partition: int, attempt_number: int, rows: Rows | None = None
) -> TaskProgress:
    """Run a task of a backfill to its end, from wherever an earlier attempt got.

    Args:
        work: what the task is part of.
        partition: which task.
        attempt_number: 0 only if no other attempt of the task can be well and at work.
        rows: of the task; None: it reads them from the log itself.

    Returns:
        The complete progress.

    Raises:
        InstanceFenced: another attempt has the task.
        RecordFailed: a record could not be processed and its policy is to fail.
        RunError: nothing can succeed here until somebody mends the cause.
        ClusterUnreachable: brokers were away for long; another attempt may go on.
    """
    with equipped(work, partition) as equipment, reading(equipment) as of_log:
        return Attempt(equipment, attempt_number).run(rows or of_log)


class Attempt:
    """Goes through the cycle once.

    Args:
        equipment: what it works with.
        number: which attempt it is, from 0.
        clock: seconds, monotonic.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        equipment: Equipment,
        number: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        place = f"{socket.gethostname()}/{os.getpid()}"
        self.name = f"{place}/{number}/{uuid.uuid4().hex[:8]}{run_mark(equipment.run)}"
        self._equipment = equipment
        self._number = number
        self._clock = clock
        self._sleep = sleep
        self._tenure = Tenure(equipment, self.name, clock=clock, sleep=sleep)

    def run(self, rows: Rows) -> TaskProgress:
        """Run all rows; see `run_attempt`."""
        if self._number > 0 or self._tenure.is_shared():
            done = self._tenure.wait()
            if done is not None:
                return done
        try:
            self._tenure.take()
            known = self._tenure.known
            if known is not None and known.complete:
                return known
            running = Running(self._equipment, self._tenure, self._clock, self._sleep)
            try:
                return running.run(rows)
            except Exception as error:
                running.leave(error)
                raise
            finally:
                running.close()
        finally:
            self._tenure.close()


class Running:
    """Runs the rows of a task that is taken (A4 to A8)."""

    def __init__(
        self,
        equipment: Equipment,
        tenure: Tenure,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        settings = equipment.settings
        timeout_seconds = settings.worker.transaction_timeout_seconds
        self._equipment = equipment
        self._tenure = tenure
        self._clock = clock
        self._sleep = sleep
        self._interval_seconds = min(settings.backfill.commit_interval_seconds, timeout_seconds / 3)
        most_records = settings.backfill.chunk_records
        self._chunk = Chunk(most_records, settings.backfill.chunk_megabytes * 2**20)
        self._piece_records = min(PIECE_RECORDS, most_records)
        self._told_at = clock()
        self._has_task = True
        self._timer = RecordTimer()
        state, compiled = equipment.state, equipment.compiled
        self._task = Task(
            equipment.identity,
            compiled.sources,
            equipment.marked(tenure.output),
            markers={},
            transaction_timeout_seconds=timeout_seconds,
            timer=self._timer,
            clock=clock,
            emissions=compiled.emissions,
            stores=None if state is None else state.open(compiled, equipment.partition),
            budget=ChangesBudget(settings.worker.queue_megabytes * 2**20 // SHARE),
        )
        self._tally = Tally(self._task, compiled)
        self._events = structlog.get_logger("eosframework.backfill").bind(
            transactional_id=str(equipment.identity)
        )
        self._task.start_at(self._positions())
        self._starts = dict(self._task.positions)

    def run(self, rows: Rows) -> TaskProgress:
        """Run all rows, and commit that the task is complete.

        Raises:
            EosError: see `run_attempt`.
        """
        offsets = {str(p): offset for p, offset in self._starts.items()}
        self._events.info("task_assigned", offsets=offsets)
        self._guarded(self._tell)
        for partition, messages in rows(self._starts):
            self._take_in(partition, messages)
        self._guarded(self._complete)
        failpoints.hit("backfill.after_complete")
        complete = self._tenure.known
        assert complete is not None, "that the task is complete is committed"
        self._events.info("task_complete", records=complete.records)
        return complete

    def leave(self, error: Exception) -> None:
        """Say that this attempt ends without having done, so that no other one waits for it."""
        if not self._has_task or isinstance(error, InstanceFenced | ClusterUnreachable):
            return
        with suppress(EosError):
            if self._task.in_transaction and not self._tenure.abort():
                return
            self._task.drop()
            self._tally.mark()
            self._tell(ended=True)

    def close(self) -> None:
        """Give the stores up, and end the timer."""
        self._timer.close()
        self._task.close_stores()

    # --- rows: A5 ---------------------------------------------------------------------------

    def _take_in(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        """Run the rows that are new."""
        self._refuse_foreign(partition, messages)
        fresh = messages[place_of(messages, self._starts[partition]) :]
        for start in range(0, len(fresh), self._piece_records):
            piece = fresh[start : start + self._piece_records]
            self._chunk.add(partition, piece)
            self._tally.saw(piece)
            if self._task.state is TaskState.RUNNING:
                self._task.add(partition, piece, None)
            self._guarded(self._run_pending)

    def _run_pending(self) -> None:
        if self._task.state is TaskState.ASSIGNED:
            self._bring_up_to_date()
        while self._task.has_pending:
            self._task.run(self._clock() + self._interval_seconds - self._task.age_seconds())
            if self._is_due():
                self._commit()

    def _bring_up_to_date(self) -> None:
        """Fill the stores (A4), and say now and then that this attempt is at it."""
        state = self._equipment.state
        while state is not None and not state.turn([self._task]):
            self._sleep(RESTORE_PAUSE_SECONDS)
            if self._clock() - self._told_at >= self._interval_seconds:
                self._tell()
        failpoints.hit("takeover.after_assign")
        self._task.enter(TaskState.RUNNING)
        for partition, messages in self._chunk:
            self._task.add(partition, messages, None)

    def _is_due(self) -> bool:
        task = self._task
        if task.wants_commit or task.age_seconds() >= self._interval_seconds:
            return True
        return self._chunk.is_full and not task.has_pending

    # --- transactions: A6 to A8 -----------------------------------------------------------------

    def _commit(self, *, complete: bool = False) -> None:
        """Commit what was run, with the word that it was the last, if so."""
        task = self._task
        if task.has_progress:
            metadata = task.commit().positions[0].metadata
            positions = dict(task.positions)
            records = self._chunk.records_before(positions)
            self._tenure.commit(
                self._progress(positions, metadata, records=records, complete=complete)
            )
            task.committed()
            self._tally.mark()
            self._chunk.drop_before(positions)
        if task.failure is not None:
            raise task.failure

    def _complete(self) -> None:
        """Commit what is left, and that everything is done."""
        known = self._tenure.known
        if known is not None and known.complete:
            return  # so said a transaction whose outcome was not known at first
        self._run_pending()
        self._refuse_unread()
        if self._task.has_progress:
            self._commit(complete=True)
        else:
            self._tell(complete=True)

    def _tell(self, *, complete: bool = False, ended: bool = False) -> None:
        """Say something of this attempt in a transaction of its own; positions stay."""
        known = self._tenure.known
        metadata = str(Progress()) if known is None else known.metadata
        self._tenure.output.begin()
        self._tenure.commit(
            self._progress(self._task.positions, metadata, complete=complete, ended=ended)
        )
        self._told_at = self._clock()

    def _guarded(self, step: Callable[[], None]) -> None:
        """Take a step; again and again, as long as what went wrong can be mended."""
        while True:
            try:
                return step()
            except TransactionError as error:
                self._recover(error)

    def _recover(self, error: TransactionError) -> None:
        """Go back to what is committed (A7); what was run since then is run again."""
        task = self._task
        age_seconds = task.age_seconds()
        if isinstance(error, DataRejected):
            if not task.has_progress:
                raise RunError(f"the registry takes no progress: {error}") from error
            task.reject(error)
        task.drop()
        self._tally.mark()
        if task.state is TaskState.RUNNING:
            task.enter(TaskState.RECOVERING)
        self._has_task = False
        self._tenure.regain(error, age_seconds)
        self._has_task = True
        task.start_at(self._positions())
        self._chunk.drop_before(task.positions)
        if task.state is TaskState.RECOVERING:
            task.enter(TaskState.ASSIGNED)

    # --- positions and progress -----------------------------------------------------------------

    def _positions(self) -> list[Position]:
        """Return where the task goes on."""
        known = self._tenure.known
        found = {} if known is None else known.by_partition()
        metadata = "" if known is None else known.metadata
        return [
            Position(*partition, found.get(partition, start), metadata)
            for partition, start in self._equipment.starts.items()
        ]

    def _progress(
        self,
        positions: Mapping[TopicPartition, int],
        metadata: str,
        *,
        records: int = 0,
        complete: bool = False,
        ended: bool = False,
    ) -> TaskProgress:
        known, counted = self._tenure.known, self._tally.open()
        times = [self._tally.first_time, None if known is None else known.first_time]
        reached = {**positions, **(self._equipment.ends if complete else {})}
        return TaskProgress(
            positions={f"{p.topic}/{p.partition}": offset for p, offset in reached.items()},
            metadata=metadata,
            records=records + (known.records if known else 0),
            late=counted.late + (known.late if known else 0),
            skipped=counted.skipped + (known.skipped if known else 0),
            dead_letters=counted.dead_letters + (known.dead_letters if known else 0),
            first_time=min((time_ for time_ in times if time_ is not None), default=None),
            complete=complete,
            ended=ended,
            attempt=self._tenure.attempt,
            written_at=round(time.time() * 1000),
        )

    def _refuse_foreign(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        """Raise if rows do not belong to the task: they would be lost, or processed twice."""
        if partition not in self._starts:
            raise RunError(
                f"a row of {partition} came to task {self._equipment.identity}, which reads "
                f"{', '.join(map(str, self._starts)) or 'nothing'}"
            )
        end = self._equipment.ends.get(partition)
        if end is not None and messages and messages[-1].offset() >= end:
            raise RunError(
                f"{describe(messages[-1])} came to task {self._equipment.identity}, whose range "
                f"ends before offset {end}"
            )

    def _refuse_unread(self) -> None:
        """Raise if the rows ended before the range: only markers may lie in between."""
        positions, ends = self._task.positions, self._equipment.ends
        left = {p: (positions[p], end) for p, end in ends.items() if positions[p] < end}
        if left and self._equipment.holds_records(left):
            ranges = ", ".join(f"{p} {start} to {end}" for p, (start, end) in left.items())
            raise RunError(
                f"the rows of task {self._equipment.identity} ended, and there are records left in "
                f"{ranges}: Spark did not read the whole range. What was read is committed; run "
                f"the job again, and it goes on from there"
            )
