"""Functions that Spark calls on executors: one attempt of each task, over rows or over the log.

Less work between the tasks of a Python worker that Spark reuses.
Spark runs many tasks in one process. After each of them pyspark collects all garbage, and modules
alone have hundreds of thousands of objects. Before each of them it invalidates the finders of
modules, and each finder of a zip archive, such as pyspark.zip, then reads the archive's directory
again (CPython 3.11). Either takes longer than a small task.

One attempt of a backfill task: Spark may restart or duplicate it, and its effects count once.

    A1. a successor watches the first attempt; it continues only if that is silent or has ended, and
        returns if all is done meanwhile. An attempt is a successor if its number is above 0, or if
        another attempt of this run was active: after lost shuffle files, Spark counts from 0 again
    A2. init the task's transactional.id: fences every other attempt, and ends its transaction
    A3. read the task's progress, with no transaction undecided; return if it is complete; else
        announce this attempt
    A4. start at its positions; restore the stores from their changelogs
    A5. run: read from the positions on, or skip earlier rows; cut the rows into chunks by time and
        size
    A6. commit: outputs, changelogs and the progress in one transaction
    A7. decide the outcome
    A8. at the end of the rows: commit the last chunk and the task's completion in one transaction

Rows sorted by Spark arrive after the shuffle, and the attempt starts with the first one: while it
waits it cannot announce itself, and has no work to protect.

Handling of outcomes (A7, `transactions/session`):

    clean         continue
    suspect       recycled already; the progress must equal the committed one
    unknown       recycle; the progress shows whether it was committed
    abortable     abort; run the chunk again
    data refused  bisect, down to the record, which is handled by `on_error`
    fenced        end: another attempt has the task. A transaction that exceeded its timeout is
                  fenced, too: continue if no other attempt appears

Progress is stored in the control topic, in the same transaction as the outputs, because group
offsets expire. The owner of the id reads final progress: no frame of another attempt counts any
more. Idle windows stay open: wall-clock triggers do not run during a backfill.

The log reader of a task, for stages whose records Spark need not sort.
Ends are fixed and `read_committed`, so every attempt finds the same records from a position on.
Several partitions are merged in the order of a live task with all its input available: no partition
is idle before its end.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import TypeVar
from zipimport import zipimporter

import structlog

from eosframework.engine.calls.call_runner import CallRunner
from eosframework.engine.failures.failure_handler import FailureHandler, describe
from eosframework.engine.task.call_queue import with_calls
from eosframework.engine.task.input_queues import ArrivalQueue, Pending, TimeOf, TimestampQueue
from eosframework.engine.task.offsets import Progress
from eosframework.engine.task.open_state import SHARE, ChangesBudget
from eosframework.engine.task.producer_group import ProducerGroup
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    EntryDamaged,
    EosError,
    InstanceFenced,
    RunError,
    TransactionError,
)
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.process.logs import configure_logs
from eosframework.process.signals import restore_default_handlers
from eosframework.process.watchdog import ended_unless_done
from eosframework.records import Position, TopicPartition
from eosframework.spark.executor.attempt_context import (
    AttemptContext,
    Chunk,
    Counters,
    Run,
    TaskSpec,
    attempt_context,
    place_of,
)
from eosframework.spark.job.job_entry import TaskProgress
from eosframework.spark.session.executors import BatchFunction, RecordBatch, batch_of, encoded
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Message
from eosframework.transactions.session.owned_keys import OwnedKey
from eosframework.transactions.session.session_states import PATIENCE_SECONDS, Outcome
from eosframework.transactions.task_attempts import AttemptWork, TaskAttempt

Rows = Callable[[Mapping[TopicPartition, int]], Iterator[Run]]
"""Returns a task's rows in order, from its positions on or earlier."""

_TAKEN_RECORDS = 2000
"""Largest number of consecutive records of one partition in a merge."""

STUCK_TIMEOUTS = 4
"""Transaction timeouts after which a call that runs functions ends the process: a function does not
return. Spark starts another attempt, which ends in the same way, and then the job."""


@contextmanager
def reading(context: AttemptContext) -> Generator[Rows]:
    """Yield a reader of the task's ranges; its connections are closed after the block.

    Its rows raise PositionLost where retention deleted records to read, and ClusterUnreachable
    while brokers stay unavailable.
    """
    with ExitStack() as opened:

        def read(positions: Mapping[TopicPartition, int]) -> Iterator[Run]:
            readers: dict[TopicPartition, Iterator[Run]] = {}
            for partition in context.compiled.in_turn(context.ends):
                range_ = positions[partition], context.ends[partition]
                readers[partition] = opened.enter_context(
                    closing(
                        read_ranges(
                            context.settings.kafka,
                            {partition: range_},
                            patience_seconds=PATIENCE_SECONDS,
                        )
                    )
                )
            if len(readers) == 1:
                return next(iter(readers.values()))
            sources = context.compiled.sources
            return merged(readers, {p: sources[p.topic].time_of for p in readers})

        yield read


def merged(
    readers: Mapping[TopicPartition, Iterator[Run]], time_of: Mapping[TopicPartition, TimeOf]
) -> Iterator[Run]:
    """Yield the records of several partitions in the order of a live task.

    Args:
        readers: the records of each partition, in offset order.
        time_of: by partition; among records of the same time, earlier partitions come first.
    """
    queue = TimestampQueue(time_of, 0.0, lambda: 0.0)
    left, waiting, read_to = dict(readers), dict.fromkeys(readers, 0), dict.fromkeys(readers, 0)
    while left or queue.is_ready():
        for partition in [p for p in left if not waiting[p]]:
            if (run := next(left[partition], None)) is None:
                del left[partition]
                queue.reached_end(partition, read_to[partition])
            else:
                queue.add(Pending(*run, None))
                waiting[partition] = len(run[1])
                read_to[partition] = run[1][-1].offset() + 1
        while queue.is_ready():
            taken = queue.take(_TAKEN_RECORDS)
            waiting[taken.partition] -= len(taken.messages)
            yield taken.partition, taken.messages


_PIECE_RECORDS = 2000
"""Largest number of rows added at once; a full chunk ends between two pieces."""

_RESTORE_PAUSE_SECONDS = 0.01

_CALL_SECONDS = 0.5
"""The longest wait for a call before the event loop is checked."""


def run_attempt(
    spec: TaskSpec, partition: int, attempt_number: int, rows: Rows | None = None
) -> TaskProgress:
    """Run a task of a backfill to its end, from the progress of an earlier attempt.

    Args:
        spec: the stage of the task.
        partition: number of the task.
        attempt_number: 0 only if no other attempt of the task can be healthy.
        rows: of the task; None: it reads them from the log itself.

    Returns:
        The complete progress.

    Raises:
        InstanceFenced: another attempt has the task.
        RecordFailed: a record could not be processed and its policy is to fail.
        RunError: no attempt can succeed until the cause is fixed.
        ClusterUnreachable: brokers were unavailable for long; another attempt may resume.
    """
    with attempt_context(spec, partition) as context, reading(context) as of_log:
        return Attempt(context, attempt_number).run(rows or of_log)


class Attempt:
    """One pass through the cycle.

    Args:
        context: its dependencies.
        number: of the attempt, from 0.
        clock: seconds, monotonic.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        context: AttemptContext,
        number: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._context = context
        self._clock = clock
        self._sleep = sleep
        self._attempt = context.attempt(number, clock, sleep)

    def run(self, rows: Rows) -> TaskProgress:
        """Run all rows; see `run_attempt`."""
        done, owned = self._attempt.take([self._context.claim])
        if done:
            return done[self._context.claim.key]
        try:
            known = owned[0].known
            if known is not None and known.complete:
                return known
            attempt_run = _AttemptRun(
                self._context, self._attempt, owned[0], self._clock, self._sleep
            )
            try:
                return attempt_run.run(rows)
            except Exception as error:
                attempt_run.leave(error)
                state = self._context.state
                if isinstance(error, EntryDamaged) and state is not None:
                    raise state.located(error) from error
                raise
            finally:
                attempt_run.close()
        finally:
            self._attempt.keys.close(owned)


class _Dropped(Exception):
    """The transaction was not confirmed, and its task was dropped."""


class _AttemptRun(AttemptWork[TaskProgress]):
    """Runs the rows of an owned task (A4 to A8)."""

    def __init__(
        self,
        context: AttemptContext,
        attempt: TaskAttempt[TaskProgress],
        owned: OwnedKey[TaskProgress],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        settings = context.settings
        timeout_seconds = settings.worker.transaction_timeout_seconds
        self._context = context
        self._clock = clock
        self._sleep = sleep
        self._stuck_seconds = STUCK_TIMEOUTS * timeout_seconds
        self._interval_seconds = min(settings.backfill.commit_interval_seconds, timeout_seconds / 3)
        most_records = settings.backfill.chunk_records
        self._chunk = Chunk(most_records, settings.backfill.chunk_megabytes * 2**20)
        self._piece_records = min(_PIECE_RECORDS, most_records)
        self._announced_at = clock()
        state, compiled = context.state, context.compiled
        makes_calls = any(source.calls for source in compiled.sources.values())
        queue_bytes = settings.worker.queue_megabytes * 2**20
        self._calls = CallRunner(queue_bytes // SHARE) if makes_calls else None
        self._task = Task(
            context.identity,
            compiled.sources,
            context.with_writer_header(owned.output),
            group=ProducerGroup(owned, clock),
            markers={},
            transaction_timeout_seconds=timeout_seconds,
            clock=clock,
            receipts=settings.worker.receipts,
            origins=context.origins,
            emissions=compiled.emissions,
            stores=None if state is None else state.open(compiled, context.partition),
            failures=FailureHandler(
                internal_topics=context.internal_topics, limits=compiled.limits
            ),
            budget=ChangesBudget(queue_bytes // SHARE),
            queue=with_calls(ArrivalQueue(), compiled, self._calls),
        )
        self._counters = Counters(self._task, compiled)
        self._events = structlog.get_logger("eosframework.backfill").bind(
            transactional_id=str(context.identity)
        )
        super().__init__(attempt, owned)
        self._task.start_at(self._positions())
        self._starts = dict(self._task.positions)

    def run(self, rows: Rows) -> TaskProgress:
        """Run all rows, and commit the task's completion.

        Raises:
            EosError: see `run_attempt`.
        """
        offsets = {str(p): offset for p, offset in self._starts.items()}
        self._events.info("task_assigned", offsets=offsets)
        self._guarded(self._announce)
        for partition, messages in rows(self._starts):
            self._take_in(partition, messages)
        self._guarded(self._complete)
        failpoints.hit("backfill.after_complete")
        complete = self.owned.known
        assert complete is not None, "that the task is complete is committed"
        self._events.info("task_complete", records=complete.records)
        return complete

    def leave(self, error: Exception) -> None:
        """Announce that this attempt ends early, so that its successor does not wait for it."""
        if isinstance(error, InstanceFenced | ClusterUnreachable):
            return
        with suppress(EosError, _Dropped):
            if self.attempt.keys.abort(self.owned):
                self.drop()
                self._announce(ended=True)

    def close(self) -> None:
        """Close the stores, and end calls that are under way."""
        self._task.close()
        if self._calls is not None:
            self._calls.close()

    # --- rows: A5 ---------------------------------------------------------------------------

    def _take_in(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        """Run new rows."""
        self._refuse_foreign(partition, messages)
        fresh = messages[place_of(messages, self._starts[partition]) :]
        for start in range(0, len(fresh), self._piece_records):
            piece = fresh[start : start + self._piece_records]
            self._chunk.add(partition, piece)
            self._counters.saw(piece)
            if self._task.state is TaskState.RUNNING:
                self._task.add(partition, piece, None)
            self._guarded(self._run_pending)

    def _run_pending(self) -> None:
        if self._task.state is TaskState.ASSIGNED:
            self._bring_up_to_date()
        while self._task.has_pending or self._waits_for_calls():
            until = self._clock() + self._interval_seconds - self._task.age_seconds()
            with ended_unless_done(self._stuck_seconds):
                self._task.run(until)
            if self._is_due():
                self._commit()

    def _waits_for_calls(self) -> bool:
        """Wait until a record may be run; return False if none waits for calls."""
        calls = self._calls
        while calls is not None and calls.in_flight and not self._task.has_pending:
            calls.wait(_CALL_SECONDS)
            calls.check()
        return self._task.has_pending

    def _bring_up_to_date(self) -> None:
        """Restore the stores (A4), and announce this attempt periodically."""
        state = self._context.state
        while state is not None and not state.turn([self._task]):
            self._sleep(_RESTORE_PAUSE_SECONDS)
            if self._clock() - self._announced_at >= self._interval_seconds:
                self._announce()
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
        """Commit processed rows, and with `complete` the task's completion."""
        task = self._task
        if task.has_progress:
            with ended_unless_done(self._stuck_seconds):
                committed = task.commit()
            progress = Progress.parse(committed.positions[0].metadata)
            positions = dict(task.positions)
            records = self._chunk.records_before(positions)
            self._commit_progress(
                self._progress(positions, str(progress), records=records, complete=complete)
            )
            task.committed()
            self._counters.mark()
            self._chunk.drop_before(positions)
        if task.failure is not None:
            raise task.failure

    def _complete(self) -> None:
        """Commit the rest, and the task's completion."""
        known = self.owned.known
        if known is not None and known.complete:
            return  # by a transaction whose outcome was unknown at first
        self._run_pending()
        self._refuse_unread()
        if self._task.has_progress:
            self._commit(complete=True)
        else:
            self._announce(complete=True)

    def _announce(self, *, complete: bool = False, ended: bool = False) -> None:
        """Announce this attempt in a separate transaction, without moving positions."""
        known = self.owned.known
        metadata = str(Progress()) if known is None else known.metadata
        self.owned.begin()
        self._commit_progress(
            self._progress(self._task.positions, metadata, complete=complete, ended=ended)
        )
        self._announced_at = self._clock()

    def _commit_progress(self, progress: TaskProgress) -> None:
        if not self.attempt.keys.commit(self.owned, progress):
            raise _Dropped

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step; recover and repeat it after a transaction that was not confirmed."""
        while True:
            try:
                return step()
            except TransactionError as error:
                self.attempt.keys.sessions.failed(self.owned, error)
                self._recover()
            except _Dropped:
                self._recover()

    def reject(self, error: DataRejected) -> None:
        """Bisect the rows."""
        if not self._task.has_progress:
            super().reject(error)
        self._task.reject(error)

    def drop(self) -> None:
        """Discard the open transaction of the task."""
        self._task.drop()
        self._counters.mark()

    def _recover(self) -> None:
        """Return to the committed progress (A7), and process later rows again."""
        task = self._task
        if task.state is TaskState.RUNNING:
            task.enter(TaskState.RECOVERING)
        outcome = self.attempt.keys.sessions.settle(self.owned)
        self._events.info("task_recovered", committed=outcome is Outcome.COMMITTED)
        task.start_at(self._positions())
        self._chunk.drop_before(task.positions)
        if task.state is TaskState.RECOVERING:
            task.enter(TaskState.ASSIGNED)

    # --- positions and progress -----------------------------------------------------------------

    def _positions(self) -> list[Position]:
        """Return the resume positions of the task."""
        known, starts = self.owned.known, self._context.starts
        if known is None:
            return [Position(*partition, start) for partition, start in starts.items()]
        found = known.by_partition()
        return [
            Position(*partition, found.get(partition, start), known.metadata_of(partition))
            for partition, start in starts.items()
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
        known, counted = self.owned.known, self._counters.open()
        times = [self._counters.first_time, None if known is None else known.first_time]
        reached = {**positions, **(self._context.ends if complete else {})}
        return TaskProgress(
            positions={f"{p.topic}/{p.partition}": offset for p, offset in reached.items()},
            metadata=metadata,
            numberings={
                f"{p.topic}/{p.partition}": str(series)
                for p, series in self._task.numberings.items()
            },
            records=records + (known.records if known else 0),
            late=counted.late + (known.late if known else 0),
            skipped=counted.skipped + (known.skipped if known else 0),
            dead_letters=counted.dead_letters + (known.dead_letters if known else 0),
            first_time=min((time_ for time_ in times if time_ is not None), default=None),
            complete=complete,
            ended=ended,
            attempt=self.attempt.name,
            written_at=round(time.time() * 1000),
        )

    def _refuse_foreign(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        """Raise if rows do not belong to the task: they would be lost, or processed twice."""
        if partition not in self._starts:
            raise RunError(
                f"a row of {partition} came to task {self._context.identity}, which reads "
                f"{', '.join(map(str, self._starts)) or 'nothing'}"
            )
        end = self._context.ends.get(partition)
        if end is not None and messages and messages[-1].offset() >= end:
            raise RunError(
                f"{describe(messages[-1])} came to task {self._context.identity}, whose range "
                f"ends before offset {end}"
            )

    def _refuse_unread(self) -> None:
        """Raise if the rows ended before the range; only control records may remain."""
        positions, ends = self._task.positions, self._context.ends
        left = {p: (positions[p], end) for p, end in ends.items() if positions[p] < end}
        if left and self._context.holds_records(left):
            ranges = ", ".join(f"{p} {start} to {end}" for p, (start, end) in left.items())
            raise RunError(
                f"the rows of task {self._context.identity} ended, and there are records left in "
                f"{ranges}: Spark did not read the whole range. The records read are committed; "
                f"run the job again to resume"
            )


_GARBAGE_THRESHOLD = 50_000
"""A batch makes thousands of tuples, all freed by reference counts; a collection for every 700th
takes 3 to 7% of the time."""


@contextmanager
def cheap_reuse() -> Generator[None]:
    """Collect garbage rarely within; afterwards leave little to collect and to invalidate."""
    thresholds = gc.get_threshold()
    gc.set_threshold(_GARBAGE_THRESHOLD, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        _exclude_modules()
        forget_archives()


def _exclude_modules() -> None:
    """Freeze the objects that exist after the first task, most of which are those of modules.

    Only once: objects of a user's function that are frozen are not collected any more.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


def forget_archives() -> None:
    """Forget the finders of zip archives; an import makes them again from cached directories."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


_T = TypeVar("_T")

RESULT_SCHEMA = "partition bigint, records bigint"


def attempts(spec: TaskSpec) -> BatchFunction:
    """Return the function for `mapInArrow`: it processes the rows of each task in transactions."""

    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        from eosframework.spark.session.spark_rows import runs

        for task, of_task in runs(batches, own_topics=spec.own_topics):
            records = _records(spec, task, partial(_ignoring_positions, of_task))
            yield batch_of([(task, records)], {"partition": "int64", "records": "int64"})

    return run


def attempts_over_log(spec: TaskSpec) -> Callable[[int], int]:
    """Return the function that runs a task over its ranges of the log and counts its records."""

    def run(task: int) -> int:
        return _records(spec, task, None)

    return run


def completions(spec: TaskSpec) -> Callable[[int], int]:
    """Return the function that completes a task without rows."""

    def run(task: int) -> int:
        return _records(spec, task, partial(_ignoring_positions, iter(())))

    return run


def run_numbered(attempt: Callable[[int], _T]) -> _T:
    """Run an attempt with Spark's attempt number; its error reaches the driver.

    Args:
        attempt: called with the number.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None:
        # A terminal's Ctrl-C does not reach executors: a user's function raised KeyboardInterrupt.
        restore_default_handlers()
    try:
        with cheap_reuse():
            return attempt(context.attemptNumber() if context else 0)
    except EosError as error:
        raise encoded(error) from None


def _records(spec: TaskSpec, task: int, rows: Rows | None) -> int:
    configure_logs(spec.settings.log)
    return run_numbered(lambda number: run_attempt(spec, task, number, rows).records)


def _ignoring_positions(rows: Iterator[Run], _: Mapping[TopicPartition, int]) -> Iterator[Run]:
    return rows
