"""A task: the work of a sub-topology on one partition number of its source topics.

The steps of a transaction, as docstrings and tests number them:

    1. begin lazily, with the first record
    2. run each record; its outputs take effect together or not at all
    3. produce
    4. send offsets, also without outputs, with transaction number and stream time
    5. commit
    6. apply the changes of the transaction to the stores on this machine
    7. decide the outcome

What a record makes due may take several transactions, before the next record is run; see
`task_windows`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from eosframework.engine.calls.flights import message_of
from eosframework.engine.codegen.compiler import CompiledSource, Emission
from eosframework.engine.failures.failure_handler import (
    FailureHandler,
    LateRecords,
    LeftOut,
    Site,
    describe,
)
from eosframework.engine.stores.state_ports import Reached
from eosframework.engine.task.input_queues import ArrivalQueue, Pending, Queue
from eosframework.engine.task.late_results import LateResults
from eosframework.engine.task.measurements import TransactionMeasures
from eosframework.engine.task.offsets import TaskOffsets
from eosframework.engine.task.old_outputs import OldOutputs
from eosframework.engine.task.open_state import ChangesBudget, OpenState
from eosframework.engine.task.producer_group import ProducerGroup
from eosframework.engine.task.receipts import ReceiptedOutputs, Series
from eosframework.engine.task.run_slices import RecordRun, SliceSize
from eosframework.engine.task.running_step import locals_where
from eosframework.engine.task.task_states import TRANSITIONS, TaskState
from eosframework.engine.task.task_time import Announcing, TaskTime
from eosframework.engine.task.task_windows import ClosingCut
from eosframework.engine.task.transaction_bisect import Bisection, RejectedTransaction
from eosframework.engine.task.transaction_receipts import TransactionReceipt
from eosframework.errors import (
    DataRejected,
    EosError,
    RecordFailed,
    RecordTooSlow,
    TransactionTooLong,
)
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph.graph import Emit
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Commit, Message, Output, TransactionalOutput
from eosframework.transactions.producing import produce_all
from eosframework.transactions.session.session_states import Outcome
from eosframework.txnid import TransactionalId

TIMEOUT_SHARE = 0.9
"""Share of the transaction timeout after which a record counts as too slow: the commit needs the
rest."""

SLOW_SHARE = 0.1
"""Share of the transaction timeout after which a slice counts as slow: it must not age, and at last
end, a transaction of other tasks."""

RUN_SHARE = 1 / 3
"""Share of the transaction timeout after which no further record is begun in a transaction."""

LEAST_RUN_SECONDS = 0.1
"""Minimum time of a run, so that tasks that share a transaction each process records."""


class Task:
    """Runs the records of its partitions and keeps the content of the next commit.

    It makes no decisions about brokers: the worker commits, recovers and closes it.

    Args:
        output: of the producer of `group`.
        group: the producer group, which begins the transactions.
        budget: memory budget of open transactions; None: the default, for this task alone.
        announcing: of stream time to downstream tasks; None: there are none.
        old_outputs: sees the outputs, to warn; None: it does not.
        receipts: outputs get receipts; the sources are compiled for it.
        origins: names of source topics in receipts, where these differ from the topics'.
    """

    def __init__(
        self,
        identity: TransactionalId,
        sources: dict[str, CompiledSource],
        output: TransactionalOutput,
        *,
        group: ProducerGroup[Task],
        markers: Mapping[TopicPartition, Output],
        transaction_timeout_seconds: float,
        clock: Callable[[], float],
        receipts: bool = False,
        origins: Mapping[str, str] | None = None,
        queue: Queue | None = None,
        emissions: Sequence[Emission] = (),
        stores: OpenState | None = None,
        measures: TransactionMeasures | None = None,
        failures: FailureHandler | None = None,
        budget: ChangesBudget | None = None,
        announcing: Announcing | None = None,
        old_outputs: OldOutputs | None = None,
    ) -> None:
        self.identity = identity
        self.output = output
        self.group = group
        self.group.tasks.append(self)
        self.stores = stores
        self.failures = failures or FailureHandler()
        self.state = TaskState.ASSIGNED
        self.processed = 0
        self.records_in_transaction = 0
        self.failure: EosError | None = None
        self._sources = sources
        self.transaction_timeout_seconds = transaction_timeout_seconds
        self._clock = clock
        self._queue = queue or ArrivalQueue()
        self._membership: object = None
        self._receipts = ReceiptedOutputs(identity.application, origins) if receipts else None
        self._offsets = TaskOffsets(markers, self._receipts)
        self._out: list[Output] = [] if self._receipts is None else self._receipts
        self._emissions = emissions
        self._bisection: Bisection | None = None
        self._results = LateResults() if stores is None else stores.results
        self.late_records = LateRecords() if stores is None else stores.late
        self.keyless_records = LeftOut() if stores is None else stores.keyless
        self._cut: Pending | None = None
        self._first: tuple[TopicPartition, int] | None = None
        """The record with which the open transaction began; None: it began without one."""
        self._ran_by_clock = False
        self._measures = measures
        self._old_outputs = old_outputs
        self.idle_since = clock()
        self._slice_size = SliceSize()
        self._budget = ChangesBudget() if budget is None else budget
        self._is_heavy = False
        upstream = None if stores is None else stores.times
        self.time = TaskTime(upstream, announcing or Announcing(identity.partition), clock)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to run of each source partition."""
        return self._offsets.reached

    @property
    def reached(self) -> Reached:
        """The last committed transaction."""
        return self._offsets.last_reached

    @property
    def partitions(self) -> list[TopicPartition]:
        """The source partitions that this task reads."""
        return list(self.positions)

    @property
    def numberings(self) -> Mapping[TopicPartition, Series]:
        """The numbering of each source partition's outputs so far; empty without receipts."""
        if self._receipts is None:
            return {}
        return {partition: self._receipts.series(partition) for partition in self.positions}

    @property
    def in_transaction(self) -> bool:
        """True if this task has run something in an open transaction."""
        return self.group.takes_part(self)

    @property
    def has_progress(self) -> bool:
        """True if there is something to commit: a position moved, or time passed."""
        return self._ran_by_clock or self._offsets.have_moved

    @property
    def has_open_progress(self) -> bool:
        """True if the open transaction has something to commit."""
        return self.in_transaction and self.has_progress

    @property
    def is_at_end(self) -> bool:
        """True if every source partition is processed up to its last stable offset."""
        return not self.has_waiting and self._offsets.are_at_end

    @property
    def lags_behind_markers(self) -> bool:
        """True if all input is processed, and the committed positions lack the last markers."""
        is_through = self.is_at_end and not self.in_transaction and not self.is_bisecting
        return is_through and self._offsets.lag_behind_markers

    def read_to(self, partition: TopicPartition) -> int:
        """Return the offset up to which a partition is read, including the markers at its end."""
        return self._offsets.read_to(partition)

    @property
    def unread(self) -> Mapping[TopicPartition, int]:
        """The positions of the source partitions that may have more records."""
        return self.positions if self.has_waiting else self._offsets.unread

    @property
    def has_rest(self) -> bool:
        """True if something is due that an earlier transaction had no room for."""
        return self.stores is not None and self.stores.windows.has_rest

    @property
    def owes_clock(self) -> bool:
        """True if functions that the wall clock calls may be due since the task was started."""
        return self.stores is not None and self.stores.windows.owes_clock

    @property
    def has_pending(self) -> bool:
        """True if a rest, or fetched messages, may be run now."""
        return self.has_rest or self._cut is not None or self._queue.is_ready()

    @property
    def has_work(self) -> bool:
        """True if something may be run now, and no other task of the producer bisects."""
        return self.has_pending and self.group.may_run(self)

    @property
    def has_waiting(self) -> bool:
        """True if fetched messages wait, including those that may not be run yet."""
        return self._cut is not None or bool(self._queue.sizes())

    def has_fetched(self, partition: TopicPartition) -> bool:
        """Return whether fetched messages of a partition wait."""
        is_cut = self._cut is not None and self._cut.partition == partition
        return is_cut or partition in self._queue.sizes()

    @property
    def full_partitions(self) -> list[TopicPartition]:
        """The source partitions with enough records waiting for other partitions."""
        return self._queue.full()

    @property
    def waiting_sizes(self) -> Mapping[TopicPartition, int]:
        """The estimated size of the waiting messages by source partition."""
        return self._queue.sizes()

    @property
    def wants_commit(self) -> bool:
        """True if the transaction must be committed before more records go into it."""
        records, bisection = self.records_in_transaction, self._bisection
        is_full = bisection is not None and bisection.is_full(records)
        is_full = is_full or self.group.room == 0 or self.group.is_awaited(self)
        return self.failure is not None or self._is_heavy or is_full

    @property
    def closes_windows_again(self) -> bool:
        """True if the broker rejected results of windows that the clock closed."""
        return self._bisection is not None and self._bisection.is_of_clock

    @property
    def is_bisecting(self) -> bool:
        """True while rejected or slow data is replayed in smaller transactions."""
        return self._bisection is not None

    def enter(self, state: TaskState) -> None:
        """Change the state; a transition outside of `TRANSITIONS` is a program error."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self.identity}: {self.state} cannot become {state}")
        self.state = state
        if state is TaskState.RUNNING and self.stores is not None:
            self.stores.begin()  # An earlier worker may have left a rest.

    def start_at(self, positions: Sequence[Position]) -> None:
        """Reset to committed positions."""
        self.time.now = self._offsets.start_at(positions)
        self.drop()
        if self._bisection is not None:
            self._bisect(self._bisection.left(self.positions))
        if self._measures is not None:
            self._measures.settled(committed=False)
        if self.stores is not None:
            self.stores.starts_at(self.time.now)

    def add(
        self,
        partition: TopicPartition,
        messages: Sequence[Message],
        membership: object,
        size_bytes: int = 0,
    ) -> None:
        """Queue messages, in offset order, with the membership they were fetched under."""
        self._queue.add(Pending(partition, messages, membership, size_bytes))

    def reached_end(self, partition: TopicPartition, offset: int) -> None:
        """Note that a partition is read up to `offset`, its last stable offset."""
        self._offsets.read_to_end(partition, offset)
        self._queue.reached_end(partition, offset)

    def run(self, until: float, membership: object = None) -> None:
        """Run pending records, slice by slice, until the clock passes `until` (steps 1 to 3).

        Args:
            until: clock time.
            membership: the group membership of the last fetch, for a rest, which runs first.

        Raises:
            TransactionError: a producer call failed; nothing of this transaction may be kept.
            RecordTooSlow: a record outlasted its transaction.
        """
        while self.has_work and not self.wants_commit:
            if self.stores is not None and self.has_rest:
                close = self.stores.windows.close_at
                self.run_by_clock(membership, "a step after windows that are due", close)
            else:
                pending = self._next()
                self._membership = pending.membership
                with self.group.whole():
                    self._run_slice(pending)
            if self._clock() >= until:
                return

    def commit(self) -> Commit:
        """Return this task's part in the next commit round (steps 3 and 4).

        Results that keyed nodes emit at the commit are produced first, then the changelog records.
        The first transaction of a partition also writes its start marker. A transaction that moved
        no position sends all positions again: their transaction number shows that it was committed.
        """
        if self.stores is not None:
            if self._emissions:
                self._emit(self.stores)
            self.stores.windows.remove_ended(self.time.now)
            own = self._transaction(self._offsets.reached)
            self._produce(self.stores.changelog(self.time.now, own))
        positions = self._offsets.to_commit(self.time.now, self._unfinished())
        if markers := self._offsets.markers(positions):
            self._produce(markers)
        return Commit(self.output, positions, self._membership)

    def _transaction(
        self, reached: Mapping[TopicPartition, int] | None = None
    ) -> TransactionReceipt | None:
        """Return the receipt of the open transaction; None: there are no receipts.

        Args:
            reached: the positions at its end; None: it names none.
        """
        receipts, offsets = self._receipts, self._offsets
        if receipts is None:
            return None
        began, moved = offsets.committed, reached or {}
        return TransactionReceipt(
            self.identity.application,
            self.identity.sub_topology,
            self.identity.partition,
            offsets.transaction,
            offsets.stream_time,
            {receipts.named(p): (began[p], end) for p, end in moved.items()},
        )

    def _attribute(self) -> None:
        """Add the receipt of the transaction to the outputs, which come from no single record."""
        if self._receipts is not None and (own := self._transaction()) is not None:
            self._receipts.attribute(own)

    def _unfinished(self) -> Collection[TopicPartition]:
        """Return the partitions whose last markers may not be committed yet."""
        if self.is_bisecting or self.failure is not None:  # What follows a failure is not queued.
            return self.partitions
        return {*self._queue.sizes(), *([self._cut.partition] if self._cut else ())}

    def committed(self) -> None:
        """Take the open transaction as committed (step 6).

        Raises:
            RunError: a local store rejects the committed changes.
        """
        self._offsets.settle(self.time.now)
        if self._measures is not None:
            self._measures.committed()
        self.group.leave(self)
        self._ran_by_clock = False
        self.time.committed()
        self.records_in_transaction = 0
        if self._bisection is not None:
            self._bisect(self._bisection.widened(self.positions))
        self._is_heavy = False
        if self.stores is not None:
            self.stores.committed(self.reached)
            self._budget.release(self.stores)

    def took_effect(self) -> None:
        """Note that the transaction that was dropped last turned out to be committed."""
        if self._measures is not None:
            self._measures.settled(committed=True)

    def reject(self, error: DataRejected) -> None:
        """Bisect the transaction, because the broker rejects some of its data.

        Raises:
            RecordFailed: the record is known, and its dead letter was rejected as well.
            RunError: a setting of an internal topic is at fault, and no record.
        """
        self.failures.refuse_unfit_topic(error)
        reached, committed = self._offsets.reached, self._offsets.committed
        refused = RejectedTransaction(
            self.records_in_transaction, reached, committed, self._results, error, self._first
        )
        self._bisect(Bisection.after(self._bisection, refused))

    def replay_alone(self) -> None:
        """Replay this task's records apart from others: the rejected data may be its own."""
        self._bisect(Bisection.to(self.records_in_transaction, self.positions))

    def age_seconds(self) -> float:
        """Return the age of the open transaction; 0 if none is open."""
        return self.group.age_seconds()

    def committed_offset(self, partition: TopicPartition) -> int:
        """Return the last known committed offset, or the start of the task."""
        return self._offsets.committed[partition]

    def reached_offset(self, partition: TopicPartition) -> int | None:
        """Return the last known committed offset; None: the task does not read the partition."""
        return self._offsets.committed.get(partition)

    def outcome(self, positions: Sequence[Position]) -> Outcome:
        """Return the outcome of the transaction after the last one known to be committed.

        Args:
            positions: the stable committed positions, read after the transaction was decided.
        """
        return self._offsets.outcome(positions)

    def drop(self) -> None:
        """Discard the open transaction and all pending records."""
        self._offsets.rewind()
        self._queue.clear()
        self._cut = None
        self._out.clear()
        if self._measures is not None:
            self._measures.dropped()
        self._is_heavy = False
        if self.stores is not None:
            self.stores.drop()
            self._budget.release(self.stores)
        self.group.leave(self)
        self._ran_by_clock = False
        self.time.drop()
        if not self.closes_windows_again:
            self.idle_since = self._clock()
        self.records_in_transaction = 0
        self.failure = None

    def close(self) -> None:
        """Close the stores, which another worker may own now, and cancel what is under way."""
        self._queue.clear()
        if self.stores is not None:
            self.stores.close()
            self._budget.release(self.stores)

    def _room(self) -> int:
        """Return the most records that the next slice may take."""
        limit = self._slice_size.limit()
        if self._bisection is not None:
            limit = min(limit, self._bisection.room(self.records_in_transaction))
        room = self.group.room
        return limit if room is None else max(1, min(limit, room))

    def _next(self) -> Pending:
        """Return the next slice; first the rest of a run that ended early."""
        room = self._room()
        if self._cut is None:
            return self._queue.take(room)
        if len(self._cut.messages) > room:
            return self._cut.split(room)
        pending, self._cut = self._cut, None
        return pending

    def _run_slice(self, slice_: Pending) -> None:
        partition, messages = slice_.partition, slice_.messages
        self._begin((partition, messages[0].offset()))
        started, done, taken = self._clock(), 0, self.time.watermarks_taken
        if self._receipts is not None:
            self._receipts.begin(partition, self._offsets.transaction)
        for run in self._sources[partition.topic].in_runs(messages, slice_.size_bytes):
            ran = self._run_at_once(partition, run)
            done += ran
            if self.failure is not None or ran < len(run) or self._is_heavy:
                break
        if self._receipts is not None:
            self._receipts.end(partition)
        if self.failure is None and done < len(messages):
            size_bytes = slice_.size_bytes * (len(messages) - done) // len(messages)
            left = replace(slice_, messages=messages[done:], size_bytes=size_bytes)
            self._cut = left if self._cut is None else left.followed_by(self._cut)
        if done > self.time.watermarks_taken - taken:
            self.idle_since = self.time.had_record(partition)
        self.output.poll()
        failpoints.hit("transaction.after_produce")
        took_seconds = self._clock() - started
        self._slice_size.took(took_seconds, max(done, 1))
        if took_seconds >= self.transaction_timeout_seconds * SLOW_SHARE:
            self.group.keep_apart(self)

    def _run_at_once(self, partition: TopicPartition, messages: Sequence[Message]) -> int:
        """Run messages, and produce their outputs; return the number of messages that were run."""
        taken = self.time.watermarks_taken
        try:
            left = len(self._run_records(partition, messages))
            count = len(messages) - left
            position = messages[count - 1].offset() + 1 if count else None
        except RecordFailed as error:
            self.failure, position, count = error, error.offset, len(messages)
            self.time.now = self._time_reached(error)
        except ClosingCut as cut:
            count = bisect_left(messages, cut.offset, key=lambda m: m.offset())
            position = cut.offset if count else None
            self.time.now = self._time_reached(cut)
            self._is_heavy = self._ran_by_clock = self.time.hurries = True
        except BaseException:
            self._out.clear()
            raise
        if position is not None:
            self._offsets.reached[partition] = position
        self.records_in_transaction += count
        self.processed += count
        if self._out or self.time.watermarks_taken - taken < count:
            self.time.hurries = True
        if self._measures is not None:
            self._measures.read(partition.topic, count)
        self._hand_out()
        if self.stores is not None and self._budget.is_spent(self.stores):
            self._is_heavy = True
        return count

    def run_by_clock(
        self, membership: object, what: str = "", close: Callable[..., None] | None = None
    ) -> None:
        """Run what no record causes, if need be in a transaction of its own.

        Args:
            membership: the group membership under which the task was found without input.
            what: the work, for messages.
            close: closes windows; takes outputs, stream time, failure handler and state. None: the
                transaction announces stream time alone.

        Raises:
            TransactionError: as `run`.
        """
        with self.group.whole():
            self._begin(None)
            self._membership = membership
            self._ran_by_clock = self.time.hurries = True
            if close is None:
                return
            self._give_time()
            try:
                close(self._out, self.time.now, self.failures, self.stores)
            except RecordFailed as error:
                self.failure = error
            self._require_time(what)
            self._attribute()
            self._hand_out()
            self._is_heavy = self._is_heavy or self.has_rest

    def commit_markers(self, membership: object) -> None:
        """Begin a transaction of offsets alone, which include the markers that were read.

        Raises:
            TransactionError: as `run`.
        """
        with self.group.whole():
            self._begin(None)
            self._membership = membership
            self._ran_by_clock = True

    def _begin(self, first: tuple[TopicPartition, int] | None) -> None:
        """Take part in the open transaction.

        Args:
            first: the record that is run; None: the clock closes windows.
        """
        if not self.in_transaction:
            self._first = first
            self._results.begin(self._bisection and self._bisection.trial_of(first))
        self.group.begin(self, has_records=first is not None)
        if self.stores is not None:
            self.stores.begin()
        if first is not None and (outputs := self.time.wake()):
            self._produce(outputs)

    def _run_records(
        self, partition: TopicPartition, messages: Sequence[Message]
    ) -> Sequence[Message]:
        """Run messages; return those that were left when the run's time was over."""
        compiled = self._sources[partition.topic]
        refused = self._bisection.culprit(partition) if self._bisection else None
        if refused is not None and messages[0].offset() == refused.offset:
            site = Site("output", compiled.source.on_error)
            self.failures(site, message_of(messages[0]), refused.error, self._out)
            if self._receipts is not None:
                self._receipts.seal(0, message_of(messages[0]))
            messages = messages[1:]
        until = self._clock() + self._give_time()
        run = RecordRun(messages, self._out, until, self._clock)
        given = messages if compiled.takes_all_at_once else run
        try:
            self.time.now = compiled.run(
                given, self._out, self.time.now, self.failures, self.stores
            )
        except (RecordFailed, ClosingCut):
            self._refuse_slow(partition, messages[: run.done or None])
            raise
        done = len(messages) if compiled.takes_all_at_once else run.done
        self._refuse_slow(partition, messages[:done])
        return messages[done:]

    def _emit(self, stores: OpenState) -> None:
        """Run the steps that follow keyed nodes which emit at the commit."""
        stores.windows.begin()
        for emission in self._emissions:
            if emission.node.emit is Emit.CLOSE:
                continue
            if emitted := stores.emitted(emission, self.time.now):
                what = f"a step after {emission.node.name!r} at the commit"
                given = self._results.of(emission.node, emitted, self._out, self.failures)
                in_time = self._in_time(what, given)
                emission.run(in_time, self._out, self.time.now, self.failures, stores)
                self._attribute()
                self._hand_out()

    def _in_time(self, what: str, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield messages while the transaction has time; see `_require_time`."""
        for message in messages:
            yield message
            self._require_time(what)

    def _require_time(self, what: str) -> None:
        """Raise if work that belongs to no single record leaves no time to commit it.

        Raises:
            TransactionTooLong: the work is retried, with fewer records in the transaction.
            RecordTooSlow: the transaction had one record or none.
        """
        if not self._is_overdue():
            return
        if self.records_in_transaction <= 1 and self.group.is_alone(self):
            raise self._outlasted(what)
        self._bisect(Bisection.to(self.records_in_transaction // 2, self.positions))
        raise self._too_long(what)

    def _give_time(self) -> float:
        """Return the seconds in which records may be begun, and give them to closing windows."""
        share_seconds = self.transaction_timeout_seconds * RUN_SHARE - self.age_seconds()
        seconds = max(share_seconds, LEAST_RUN_SECONDS)
        if self.stores is not None:
            self.stores.windows.give_seconds(seconds)
        return seconds

    def _is_overdue(self) -> bool:
        return self.age_seconds() >= self.transaction_timeout_seconds * TIMEOUT_SHARE

    def _time_reached(self, error: RecordFailed | ClosingCut) -> int:
        """Return the stream time at which the slice ended early; state was changed up to it."""
        codes = [compiled.code for compiled in self._sources.values()]
        return locals_where(error, codes).get("stream_time", self.time.now)

    def _bisect(self, bisection: Bisection | None) -> None:
        """Replay rejected or slow data in smaller transactions; None: no longer."""
        self._bisection = bisection
        self.group.bisects(self, bisection is not None)

    def _refuse_slow(self, partition: TopicPartition, begun: Sequence[Message]) -> None:
        """Raise if the records that were begun leave no time to commit them.

        The last one is retried first in a transaction of its own. The limit holds up to and
        including it: with a shared producer other tasks would otherwise add to its transaction, and
        it would be slow in company once more. A batch, which no record ends early, is retried in
        halves.

        Raises:
            TransactionTooLong: the records are retried, fewer to a transaction.
            RecordTooSlow: the record was alone.
        """
        if not self._is_overdue():
            return
        is_batch, last = self._sources[partition.topic].takes_all_at_once, begun[-1]
        before = len(begun) // 2 if is_batch else len(begun) - 1
        records = self.records_in_transaction + before
        if not records and self.group.is_alone(self):
            raise self._outlasted(describe(last)) from None
        positions = {**self.positions, partition: last.offset() + 1}
        self._bisect(Bisection.to(records, positions))
        raise self._too_long(describe(last)) from None

    def _outlasted(self, what: str) -> RecordTooSlow:
        return RecordTooSlow(
            f"{what} was processed until {self.age_seconds():.1f} s after the transaction began, "
            f"which had no other record; one of {self.identity} may take "
            f"{self.transaction_timeout_seconds:g} s. Nothing of it was committed. Make the "
            f"function faster, or raise worker.transaction_timeout_seconds (at most the brokers' "
            f"transaction.max.timeout.ms)"
        )

    def _too_long(self, what: str) -> TransactionTooLong:
        return TransactionTooLong(
            f"{what} was processed until {self.age_seconds():.1f} s after the transaction of "
            f"{self.identity} began, which may take {self.transaction_timeout_seconds:g} s; it is "
            f"processed again in one with fewer records"
        )

    def _hand_out(self) -> None:
        """Produce the outputs of the records that were run."""
        if self._results.trial is None:
            self._produce_given(self._out)
        else:
            self._results.hand_out(self._out, self._produce_given, self.output.deliver)
        self._out.clear()

    def _produce_given(self, outputs: Sequence[Output]) -> None:
        if self._old_outputs is not None:
            self._old_outputs.look(outputs)
        self._produce(outputs)

    def _produce(self, outputs: Sequence[Output]) -> None:
        sent = self.group.taken(outputs)
        produce_all(self.output, sent)
        self.group.session.size.wrote(sent)
        if self._measures is not None:
            self._measures.wrote(outputs)


def producer_groups(tasks: Iterable[Task]) -> list[ProducerGroup[Task]]:
    """Return the producer groups of some tasks, each once."""
    return list(dict.fromkeys(task.group for task in tasks))
