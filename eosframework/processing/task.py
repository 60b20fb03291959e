"""One task: a sub-topology's work on one partition number of its source topics.

    ASSIGNED ──state up to date, resumed──▶ RUNNING ──▶ RECOVERING ──▶ ASSIGNED
        │                                     │             ▲
        │                                     ▼             │
        │                                   FENCED ─────────┘
        └────────────────────────────────▶ CLOSED ◀── from every state

The steps of a transaction, as the docstrings and the tests number them:

    1. begin lazily, with the first record
    2. run each record; its outputs take effect together or not at all
    3. produce
    4. send offsets, also when there was no output, with transaction number and stream time
    5. commit
    6. apply what the transaction changed to the stores on this machine
    7. decide what the outcome was
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eosframework import failpoints
from eosframework.errors import DataRejected, EosError, RecordFailed, RecordTooSlow
from eosframework.processing.compile import CompiledSource, Emission
from eosframework.processing.failures import FailureHandler, describe
from eosframework.processing.lines import Site
from eosframework.processing.measures import Flow
from eosframework.processing.narrowing import Narrowing
from eosframework.processing.open_state import OpenState
from eosframework.processing.overtime import Overtime, RecordTimer, locals_where
from eosframework.processing.ports import Commit, Message, Output, TransactionalOutput
from eosframework.processing.progress import Outcome, Progress, latest, outcome
from eosframework.processing.queues import ArrivalQueue, Pending, Queue
from eosframework.processing.receipts import ReceiptedOutputs
from eosframework.processing.slices import SliceSize
from eosframework.processing.states import TRANSITIONS, TaskState
from eosframework.processing.windowing import TimedNode
from eosframework.records import Position, TopicPartition
from eosframework.topology.graph import Emit
from eosframework.txnid import TransactionalId

TIMEOUT_SHARE = 0.9
"""Share of the transaction timeout after which a record counts as too slow: the commit itself
needs the rest."""


class Task:
    """Runs records of its partitions and keeps what the next commit must say.

    It decides nothing about brokers: the worker commits it, recovers it and closes it.
    """

    def __init__(
        self,
        identity: TransactionalId,
        sources: dict[str, CompiledSource],
        output: TransactionalOutput,
        *,
        markers: Mapping[TopicPartition, Output],
        transaction_timeout_seconds: float,
        timer: RecordTimer,
        clock: Callable[[], float],
        receipts: bool = False,
        queue: Queue | None = None,
        emissions: Sequence[Emission] = (),
        stores: OpenState | None = None,
        flow: Flow | None = None,
    ) -> None:
        self.identity = identity
        self.output = output
        self.stores = stores
        self.failures = FailureHandler()
        self.state = TaskState.ASSIGNED
        self.positions: dict[TopicPartition, int] = {}
        self.ends_reached: dict[TopicPartition, int] = {}
        self.fences_in_a_row = 0
        self.aborts_in_a_row = 0
        self.processed = 0
        self.failure: EosError | None = None
        self._sources = sources
        self._markers = dict(markers)
        self._timeout_seconds = transaction_timeout_seconds
        self._timer = timer
        self._clock = clock
        self._committed: dict[TopicPartition, int] = {}
        self._progress = Progress()
        self._stream_time = 0
        self._queue = queue or ArrivalQueue()
        self._membership: object = None
        self._began_at: float | None = None
        self._records_in_transaction = 0
        self._receipts = ReceiptedOutputs(identity.application) if receipts else None
        self._out: list[Output] = [] if self._receipts is None else self._receipts
        self._emissions = emissions
        self._narrowing: Narrowing | None = None
        self._closed_windows = False
        self._flow = flow
        self.idle_since = clock()
        self._slice_size = SliceSize()

    @property
    def partitions(self) -> list[TopicPartition]:
        """The source partitions that this task reads."""
        return list(self.positions)

    @property
    def transaction_timeout_seconds(self) -> float:
        """After so long the brokers end an open transaction."""
        return self._timeout_seconds

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._began_at is not None

    @property
    def has_progress(self) -> bool:
        """Whether there is something to commit: a position moved, or windows closed."""
        return self._closed_windows or self.positions != self._committed

    @property
    def has_open_progress(self) -> bool:
        """Whether there is something to commit in the open transaction."""
        return self.in_transaction and self.has_progress

    @property
    def is_at_end(self) -> bool:
        """Whether every source partition is read to its last stable offset, and all of it run."""
        return not self.has_pending and all(
            self.ends_reached.get(p, -1) >= offset for p, offset in self.positions.items()
        )

    def read_to(self, partition: TopicPartition) -> int:
        """Return up to which offset a partition is read, with the markers at its end."""
        return max(self.positions[partition], self.ends_reached.get(partition, 0))

    @property
    def has_pending(self) -> bool:
        """Whether fetched messages wait that may be run now."""
        return self._queue.is_ready()

    @property
    def full_partitions(self) -> list[TopicPartition]:
        """The source partitions of which enough waits for records of others."""
        return self._queue.full()

    @property
    def late_records(self) -> int:
        """How many records came too late for a step."""
        return 0 if self.stores is None else self.stores.late.count

    @property
    def wants_commit(self) -> bool:
        """Whether the transaction must be committed before more records go into it."""
        return self.failure is not None or (
            self._narrowing is not None and self._narrowing.is_full(self._records_in_transaction)
        )

    def enter(self, state: TaskState) -> None:
        """Change the state; a transition that the table does not have is a program error."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self.identity}: {self.state} cannot become {state}")
        self.state = state

    def start_at(self, positions: Sequence[Position]) -> None:
        """Take committed positions as the truth; what was run since then is forgotten."""
        self._progress = latest(positions)
        self._stream_time = self._progress.stream_time
        for position in positions:
            assert position.offset is not None, "a start position is an offset"
            self.positions[position.topic_partition] = position.offset
            self._committed[position.topic_partition] = position.offset
        if self._receipts is not None:
            self._receipts.restart(positions)
        self.drop()
        if self._flow is not None:
            self._flow.settled(committed=False)
        if self.stores is not None:
            self.stores.starts_at(self._stream_time)

    def add(
        self, partition: TopicPartition, messages: Sequence[Message], membership: object
    ) -> None:
        """Queue messages, in offset order, with the membership they were fetched under."""
        self._queue.add(Pending(partition, messages, membership))

    def reached_end(self, partition: TopicPartition, offset: int) -> None:
        """Note that a partition is read up to `offset`, its last stable one."""
        self.ends_reached[partition] = offset
        self._queue.reached_end(partition, offset)

    def run(self, until: float) -> None:
        """Run what is pending, slice by slice, until the clock passes `until` (steps 1 to 3).

        Raises:
            TransactionError: a producer call failed; nothing of this transaction may be kept.
            RecordTooSlow: a record outlasted its transaction.
        """
        while self._queue.is_ready() and not self.wants_commit:
            pending = self._queue.take(self._room())
            self._membership = pending.membership
            self._run_slice(pending.partition, pending.messages)
            if self._clock() >= until:
                return

    def commit(self) -> Commit:
        """Return this task's part in the next round of commits (steps 3 and 4).

        What keyed nodes give at the commit goes out first, then what was changed in stores. The
        first transaction of a partition also writes its marker into the registry. One that
        moved no position sends them all again: the number beside them tells that it happened.
        """
        if self.stores is not None:
            self._emit(self.stores)
            self.stores.windows.remove_ended(self._stream_time)
            self._produce(self.stores.changelog(self._stream_time))
        moved_none = self.positions == self._committed
        progress = Progress(self._progress.transaction + 1, self._stream_time)
        positions: list[Position] = []
        for partition, offset in self.positions.items():
            if moved_none or offset != self._committed[partition]:
                metadata = str(progress)
                if self._receipts is not None:
                    metadata += f";{self._receipts.series(partition)}"
                positions.append(Position(*partition, offset, metadata))
                if partition in self._markers:
                    self._produce([self._markers[partition]])
        return Commit(self.output, positions, self._membership)

    def committed(self) -> None:
        """Take the open transaction as committed (step 6).

        Raises:
            RunError: a store on this machine does not take what was committed.
        """
        self._progress = Progress(self._progress.transaction + 1, self._stream_time)
        for partition, offset in self.positions.items():
            if offset != self._committed[partition]:
                self._committed[partition] = offset
                self._markers.pop(partition, None)
        if self._receipts is not None:
            self._receipts.committed()
        if self._flow is not None:
            self._flow.committed(self._records_in_transaction, self.age_seconds())
        self._began_at = None
        self._closed_windows = False
        self._records_in_transaction = 0
        self.fences_in_a_row = self.aborts_in_a_row = 0
        if self._narrowing is not None:
            self._narrowing = self._narrowing.widened(self.positions)
        if self.stores is not None:
            self.stores.committed()

    def took_effect(self) -> None:
        """Note that the transaction that was dropped last turned out to be committed."""
        self.fences_in_a_row = self.aborts_in_a_row = 0
        if self._flow is not None:
            self._flow.settled(committed=True)

    def reject(self, error: DataRejected) -> None:
        """The broker refuses something of this transaction: replay it in halves.

        Raises:
            RecordFailed: the record is known, and its dead letter was refused as well.
        """
        self._narrowing = Narrowing.after(
            self._narrowing, self._records_in_transaction, self.positions, self._committed, error
        )

    def age_seconds(self) -> float:
        """Return for how long the open transaction has been open; 0 if there is none."""
        return 0.0 if self._began_at is None else self._clock() - self._began_at

    def committed_offset(self, partition: TopicPartition) -> int:
        """Return the offset last known to be committed, or where the task started."""
        return self._committed[partition]

    def outcome(self, positions: Sequence[Position]) -> Outcome:
        """Return what became of the transaction after the last one known to be committed.

        Args:
            positions: the stable committed ones, read when that was decided.
        """
        became = outcome(self._progress, latest(positions))
        moved = any(p.offset != self._committed[p.topic_partition] for p in positions)
        return Outcome.OVERTAKEN if moved and became is Outcome.NOT_COMMITTED else became

    def drop(self) -> None:
        """Forget what the open transaction did and what waits to be run."""
        self.positions.update(self._committed)
        self._queue.clear()
        self.ends_reached.clear()
        self._out.clear()
        if self._flow is not None:
            self._flow.dropped()
        if self._receipts is not None:
            self._receipts.rewind()
        if self.stores is not None:
            self.stores.drop()
        self._began_at = None
        self._closed_windows = False
        self.idle_since = self._clock()
        self._records_in_transaction = 0
        self.failure = None

    def close_stores(self) -> None:
        """Give the stores up; another worker may have them now."""
        if self.stores is not None:
            self.stores.close()

    def _room(self) -> int:
        """Return how many records the next slice may take."""
        limit = self._slice_size.limit()
        if self._narrowing is not None:
            limit = min(limit, self._narrowing.room(self._records_in_transaction))
        return limit

    def _run_slice(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        self._begin()
        started = self._clock()
        position = messages[-1].offset() + 1
        if self._receipts is not None:
            self._receipts.begin(partition, self._progress.transaction + 1)
        try:
            self._run_records(partition, messages)
        except RecordFailed as error:
            self.failure, position = error, error.offset
            self._stream_time = self._time_reached(error)
        except BaseException:
            self._out.clear()
            raise
        if self._receipts is not None:
            self._receipts.end(partition)
        self.positions[partition] = position
        self._records_in_transaction += len(messages)
        self.processed += len(messages)
        if self._flow is not None:
            self._flow.read(partition.topic, len(messages))
        self.idle_since = self._clock()
        self._produce(self._out)
        self._out.clear()
        self.output.poll()
        failpoints.hit("transaction.after_produce")
        self._slice_size.took(self._clock() - started, len(messages))

    def close_windows(self, nodes: Sequence[TimedNode], membership: object) -> None:
        """Close windows because nothing came for a while; a transaction may be for that alone.

        Args:
            nodes: whose windows.
            membership: under which it was seen that nothing came.

        Raises:
            TransactionError: as `run`.
        """
        assert self.stores is not None, "windows are in stores"
        self._begin()
        self._membership = membership
        self._closed_windows = True
        try:
            self.stores.windows.close_by_clock(
                nodes, self._out, self._stream_time, self.failures, self.stores
            )
        except RecordFailed as error:
            self.failure = error
        self._produce(self._out)
        self._out.clear()

    def _begin(self) -> None:
        if self._began_at is None:
            self.output.begin()
            self._began_at = self._clock()
            failpoints.hit("transaction.after_begin")
        if self.stores is not None:
            self.stores.windows.begin()

    def _run_records(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        compiled = self._sources[partition.topic]
        refused = self._narrowing.culprit(partition) if self._narrowing else None
        if refused is not None and messages[0].offset() == refused.offset:
            site = Site("output", compiled.source.on_error)
            self.failures(site, messages[0], refused.error, self._out)
            if self._receipts is not None:
                self._receipts.seal(0, messages[0])
            messages = messages[1:]
        self._timer.start(self._timeout_seconds * TIMEOUT_SHARE - self.age_seconds())
        try:
            self._stream_time = compiled.run(
                messages, self._out, self._stream_time, self.failures, self.stores
            )
        except Overtime as overtime:
            raise self._too_slow(compiled, messages, overtime) from None
        finally:
            self._timer.stop()

    def _emit(self, stores: OpenState) -> None:
        """Run what follows the keyed nodes that give their records at the commit."""
        stores.windows.begin()
        for emission in self._emissions:
            if emission.node.emit is Emit.CLOSE:
                continue
            messages = stores.emitted(emission)
            emission.run(messages, self._out, self._stream_time, self.failures, stores)
            self._produce(self._out)
            self._out.clear()

    def _time_reached(self, error: RecordFailed) -> int:
        """Return the stream time at which the slice ended early; state was changed up to there."""
        codes = [compiled.code for compiled in self._sources.values()]
        return locals_where(error, codes).get("stream_time", self._stream_time)

    def _too_slow(
        self, compiled: CompiledSource, messages: Sequence[Message], overtime: Overtime
    ) -> RecordTooSlow:
        message = locals_where(overtime, [compiled.code]).get("m", messages[0])
        return RecordTooSlow(
            f"{describe(message)} was still being processed after {self.age_seconds():.1f} s, "
            f"but a transaction of {self.identity} may take {self._timeout_seconds:g} s. Nothing "
            f"of it was committed. Make the function faster, or raise "
            f"worker.transaction_timeout_seconds (at most the brokers' transaction.max.timeout.ms)"
        )

    def _produce(self, outputs: Sequence[Output]) -> None:
        """Hand the outputs to the producer; a full queue is waited for (step 3)."""
        produce = self.output.produce
        remaining = iter(outputs)
        output: Output | None = None
        while True:
            try:
                if output is not None:
                    produce(*output)
                for output in remaining:
                    produce(*output)
                break
            except BufferError:
                self.output.poll(0.01)
            except Exception as error:
                raise self.output.explain(error) from error
        if self._flow is not None:
            self._flow.wrote(outputs)
