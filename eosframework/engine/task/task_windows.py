"""The windows of one task: the results of closing windows, and the removal of ended ones.

One record may make any number of windows, timers and held records due. A transaction takes as much
of that as it has room for; what is left is a *rest*, which further transactions close before the
task runs its next record:

    WC1. the record is run, and the first results are emitted, until the transaction is full
    WC2. the transaction commits: the position after the record, stream time, and what is closed
    WC3. transactions without a record close the rest, each as much as it has room for
    WC4. the next record is run

Nothing about the rest is recorded: what is due at the committed stream time follows from the
stores. So a worker that finds something due when it takes a task over is between WC2 and WC4.

The next result depends on the stores and stream time alone: it is the next one of the first node
that has something due. So the order of results does not depend on where transactions end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from eosframework.engine.codegen.compiler import CompiledPart, Emission
from eosframework.engine.codegen.generated_run import Failed, RunState
from eosframework.engine.failures.failure_handler import Site
from eosframework.engine.operators.handlers import Handler
from eosframework.engine.operators.reordering import Reordering
from eosframework.engine.operators.stream_joins import Unpaired
from eosframework.engine.operators.windows import NEVER, Alarms, TimedState, WindowOperator
from eosframework.engine.task.late_results import (
    EmittedResult,
    LateResults,
    unpaired_message,
)
from eosframework.errors import RecordFailed
from eosframework.serialization.serdes import JSON, window_serde
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    Processor,
    Reorder,
    StreamJoin,
    Table,
    WallClock,
)
from eosframework.transactions.ports import Message, Output

MOST_STEPS = 10_000
"""The most results of a transaction, with the removals that give none. A result takes up to about
5 kB until it is committed: as an output, and as a change of a store and of its changelog."""

MOST_BYTES = 16 * 2**20
"""The size of a transaction's results and changes after which it takes no further result."""

MOST_SECONDS = 1.0
"""The time of a transaction's results after which it takes no further one."""


NOT_LOOKED = -1
"""Earlier than every time of the wall clock."""


class ClosingCut(BaseException):
    """The transaction is full, and more is due; not an Exception, which a record may fail with.

    Args:
        offset: the next offset to run.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class _Room:
    """The room of the open transaction for results.

    Args:
        changed_bytes: returns the size of the transaction's changes.

    Attributes:
        seconds: the time for further results, from `begin` on.
    """

    def __init__(self, changed_bytes: Callable[[], int]) -> None:
        self.seconds = MOST_SECONDS
        self._changed_bytes = changed_bytes
        self.clear()

    def clear(self) -> None:
        """Begin a transaction."""
        self._steps = self._size_bytes = self._seen = 0

    def begin(self, out: Sequence[Output]) -> None:
        """Begin to close; `out` may have outputs of records."""
        self._seen = len(out)
        self._until = monotonic() + self.seconds

    def is_spent(self, out: Sequence[Output]) -> bool:
        """Return whether the next result must wait for another transaction."""
        if len(out) > self._seen:
            self._size_bytes += sum(len(output[1] or b"") for output in out[self._seen :])
            self._seen = len(out)
        return self._steps > 0 and (
            self._steps >= MOST_STEPS
            or self._size_bytes + self._changed_bytes() >= MOST_BYTES
            or monotonic() >= self._until
        )

    def take(self) -> None:
        """Count a result, or a removal."""
        self._steps += 1


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass over what is due.

    Args:
        out: takes the outputs.
        now: stream time, in milliseconds.
        failed: handles results that fail.
        state: the state of the task.
        besides: a reorder step, which closes the others in front of a held record.
    """

    out: list[Output]
    now: int
    failed: Failed
    state: RunState
    besides: TimedNode | None = None


@dataclass(frozen=True, slots=True)
class TimedNode:
    """A keyed node whose state ends with time.

    Args:
        emission: the steps that follow it, if its results are emitted later.
    """

    node: Aggregate | StreamJoin | Table | Processor | Reorder | WallClock
    operator: TimedState
    emission: Emission | None

    @property
    def idle_seconds(self) -> float | None:
        """The time without a record after which its windows close; None: never."""
        window = None if isinstance(self.node, Processor | WallClock) else self.node.store.window
        return None if window is None or not window.close_idle_ms else window.close_idle_ms / 1000

    @property
    def windows(self) -> WindowOperator:
        """The operator of a node with windows."""
        assert isinstance(self.operator, WindowOperator), "only windows close by the clock"
        return self.operator

    def until(self, now: int) -> int:
        """Return the time up to which it is closed at stream time `now`, or by the clock."""
        operator = self.operator
        return max(now, operator.floor) if isinstance(operator, WindowOperator) else now


def timed_nodes(compiled: CompiledPart, operators: Sequence[Any]) -> list[TimedNode]:
    """Return the nodes of a task whose state ends with time."""
    emissions = {id(emission.node): emission for emission in compiled.emissions}
    return [
        TimedNode(node, timed, emissions.get(id(node)))
        for node, operator in zip(compiled.keyed, operators, strict=True)
        if isinstance(timed := _timed(operator), TimedState)
        and isinstance(node, Aggregate | StreamJoin | Table | Processor | Reorder | WallClock)
    ]


def _timed(operator: Any) -> Any:
    return operator.timers if isinstance(operator, Handler) else operator


class TaskWindows:
    """Closes windows when stream time, or the clock, has passed them.

    Args:
        nodes: the timed nodes of the task.
        alarms: the alarms that their operators set.
        partition: the partition of the task.
        results: the task's late results.
        changed_bytes: returns the size of the open transaction's changes.

    Attributes:
        has_rest: something is due that the open transaction has no room for, or had none for.
    """

    def __init__(
        self,
        nodes: Sequence[TimedNode],
        alarms: Alarms,
        partition: int,
        results: LateResults,
        changed_bytes: Callable[[], int],
    ) -> None:
        self.alarm = alarms.closes
        self.has_rest = False
        self._ends = alarms.ends
        self._clocked = [n for n in nodes if isinstance(n.node, WallClock)]
        self._clock = NOT_LOOKED
        """The time of the wall clock up to which functions are called."""
        self._closing = [
            n
            for n in nodes
            if n.node.emit is Emit.CLOSE and n.emission is not None and n not in self._clocked
        ]
        self._ending = [n for n in nodes if n.node.emit is not Emit.CLOSE]
        self._idle_times = sorted({n.idle_seconds for n in self._closing if n.idle_seconds})
        self._partition = partition
        self._results = results
        self._is_known = False
        self._starts_at = 0
        self._room = _Room(changed_bytes)
        self._by_clock = deque[TimedNode]()
        """The nodes that the clock closes, after those that stream time has passed."""

    def starts_at(self, stream_time: int) -> None:
        """Set the committed stream time; what is due at it is a rest (WC3)."""
        self._starts_at = stream_time

    def begin(self) -> None:
        """Load the stores into the operators; before the first record.

        Raises:
            RunError: a store was made for other windows.
        """
        if not self._is_known:
            for node in (*self._closing, *self._ending, *self._clocked):
                node.operator.begin()
            self._is_known = True
            now = self._starts_at
            # An operator that is due at 0 does not know: the next commit shows it.
            is_left = any(0 < n.operator.due() <= now for n in self._ending)
            self.has_rest = is_left or any(n.operator.due() <= n.until(now) for n in self._closing)

    def reset(self) -> None:
        """Discard what the operators know of the stores, whose content may change."""
        self._is_known = self.has_rest = False
        self._clock = NOT_LOOKED
        self._by_clock.clear()
        self.alarm.due = self._ends.due = NEVER
        self.next_transaction()

    def next_transaction(self) -> None:
        """Note that the open transaction is over."""
        self._room.clear()

    def give_seconds(self, seconds: float) -> None:
        """Set the time that a transaction has for results, at most `MOST_SECONDS`."""
        self._room.seconds = min(seconds, MOST_SECONDS)

    def close(
        self, message: Message, out: list[Output], now: int, failed: Failed, state: RunState
    ) -> None:
        """Run the steps that follow each window that `now` closes.

        Args:
            message: the record that moved stream time to `now`; it is complete.
            out: takes the outputs.
            now: stream time, in milliseconds.
            failed: handles results that fail.
            state: the state of the task.

        Raises:
            RecordFailed: a result failed; its window and the later ones are open.
            ClosingCut: there is a rest; the record is complete (WC1).
        """
        self._close_around(message.offset() + 1, out, now, failed, state)

    def close_before(
        self, message: Message, out: list[Output], now: int, failed: Failed, state: RunState
    ) -> None:
        """Run the same before the record that moved stream time; see `close`.

        Raises:
            RecordFailed: a result failed; the record was not run.
            ClosingCut: there is a rest; the record was not run.
        """
        self._close_around(message.offset(), out, now, failed, state)

    def close_at(self, out: list[Output], now: int, failed: Failed, state: RunState) -> None:
        """Run the steps that follow each window that `now` closes, without a record.

        Raises:
            RecordFailed: a result failed; its window and the later ones are open.
        """
        self._room.begin(out)
        try:
            self.has_rest = not self._close_all(_Pass(out, now, failed, state))
        finally:
            self.alarm.due = min((n.operator.due() for n in self._closing), default=NEVER)

    def remove_ended(self, now: int) -> None:
        """Remove the windows that have ended without a result to emit; before a commit."""
        if now < self._ends.due:
            return
        room = self._room
        room.begin(())
        for node in self._ending:
            with closing(node.operator.closing(now)) as found:
                for _ in found:
                    if room.is_spent(()):
                        break
                    room.take()
        self._ends.due = min((n.operator.due() for n in self._ending), default=NEVER)
        self.has_rest = self.has_rest or self._ends.due <= now

    def emitted(self, node: Aggregate) -> list[Message]:
        """Return the results of the windows that the transaction changed, as messages."""
        timed = next(timed for timed in self._ending if timed.node is node)
        return [self._message(node, closed) for closed in timed.windows.changed()]

    @property
    def idle_times(self) -> Sequence[float]:
        """The times in seconds without a record after which windows close."""
        return self._idle_times

    @property
    def may_close(self) -> bool:
        """True if a window may have to be closed by the clock."""
        if self._idle_times:
            self.begin()
        idle = (node for node in self._closing if node.idle_seconds is not None)
        return any(node.operator.due() < NEVER for node in idle)

    def open_for(self, idle_seconds: float) -> list[TimedNode]:
        """Return the nodes with open windows whose idle time is `idle_seconds` or less."""
        due = [n for n in self._closing if (n.idle_seconds or NEVER) <= idle_seconds]
        if due:
            self.begin()
        return [n for n in due if n.operator.due() < NEVER and n.windows.last_close() > 0]

    def close_by_clock(
        self,
        nodes: Sequence[TimedNode],
        out: list[Output],
        now: int,
        failed: Failed,
        state: RunState,
    ) -> None:
        """Close all windows of some nodes.

        Args:
            nodes: whose windows close.
            out: takes the outputs.
            now: stream time, which does not change.
            failed: handles results that fail.
            state: the state of the task.

        Raises:
            RecordFailed: a result failed.
        """
        self._by_clock.extend(nodes)
        self.close_at(out, now, failed, state)

    @property
    def is_clocked(self) -> bool:
        """True if the wall clock calls functions of the task."""
        return bool(self._clocked)

    @property
    def owes_clock(self) -> bool:
        """True if the due times of the wall clock were not looked at since the last start."""
        return self.is_clocked and self._clock == NOT_LOOKED

    def clock_due(self) -> int:
        """Return the time of the wall clock at which the first function is due."""
        self.begin()
        return min((node.operator.due() for node in self._clocked), default=NEVER)

    def look_at_clock(self, time: int) -> bool:
        """Note the time of the wall clock, in milliseconds; return whether a function is due."""
        self._clock = time
        return self.clock_due() <= time

    def _until(self, node: TimedNode, now: int) -> int:
        return self._clock if isinstance(node.node, WallClock) else node.until(now)

    def _close_around(
        self, offset: int, out: list[Output], now: int, failed: Failed, state: RunState
    ) -> None:
        try:
            self.close_at(out, now, failed, state)
        except RecordFailed as error:
            raise RecordFailed(str(error), offset=offset) from error
        if self.has_rest:
            raise ClosingCut(offset)

    def _close_all(self, pass_: _Pass) -> bool:
        """Close what is due; False: the transaction is full before that."""
        while True:
            node = self._first_due(pass_)
            if node is None:
                if not self._by_clock or pass_.besides is not None:
                    return True
                # A node before this one may have emitted into its windows.
                self._by_clock.popleft().windows.close_by_clock()
                continue
            if self._room.is_spent(pass_.out):
                return False
            self.alarm.due = NEVER
            if isinstance(node.operator, Reordering):
                self._release(node, node.operator, pass_)
            else:
                self._close_one(node, self._until(node, pass_.now), pass_)

    def _first_due(self, pass_: _Pass) -> TimedNode | None:
        """Return the first node with something due."""
        clocked = self._clocked if pass_.besides is None else ()
        for node in (*self._closing, *clocked):
            if node is not pass_.besides and node.operator.due() <= self._until(node, pass_.now):
                return node
        return None

    def _ends_at(self, node: TimedNode, pass_: _Pass) -> bool:
        """Return whether the next result is not one of `node`, or not of this transaction."""
        if self.alarm.due <= pass_.now:  # A result has changed what is due.
            if self._first_due(pass_) is not node:
                return True
            self.alarm.due = NEVER
        return self._room.is_spent(pass_.out)

    def _release(self, node: TimedNode, reordering: Reordering, pass_: _Pass) -> None:
        """Run the held records that stream time has passed, and displace those beyond the limit.

        A record's time of writing closes windows before the record is run: none accepts it, and a
        sliding window that is closed, but not emitted yet, would never be.
        """
        is_through = False

        def in_order() -> Generator[Message]:
            nonlocal is_through
            with closing(reordering.closing(pass_.now)) as found:
                for record in found:
                    if self._ends_at(node, pass_):
                        return
                    if not self._close_all(replace(pass_, now=record.written, besides=node)):
                        return
                    if self._room.is_spent(pass_.out):
                        return
                    self._room.take()
                    yield record
            is_through = True

        self._emit(node, in_order(), pass_)
        if is_through:
            self._displace(node.node, reordering, pass_)

    def _displace(self, node: Any, reordering: Reordering, pass_: _Pass) -> None:
        """Let `on_error` decide on the first held records while too many are held."""
        with closing(reordering.displaced()) as found:
            for record in found:
                if self._room.is_spent(pass_.out):
                    return
                self._room.take()
                site = Site(node.name, node.on_error)
                pass_.failed(site, record, reordering.overfull(), pass_.out)

    def _close_one(self, node: TimedNode, until: int, pass_: _Pass) -> None:
        self._emit(node, self._closed(node, until, pass_), pass_)

    def _emit(self, node: TimedNode, results: Generator[Message], pass_: _Pass) -> None:
        """Run the steps that follow a node for its results."""
        assert node.emission is not None, "what closes is emitted"
        # Closing the generator lets the operator record the results before one that failed.
        with closing(results):
            messages = self._results.of(node.node, results, pass_.out, pass_.failed)
            node.emission.run(messages, pass_.out, pass_.now, pass_.failed, pass_.state)

    def _closed(self, node: TimedNode, until: int, pass_: _Pass) -> Generator[Message]:
        with closing(node.operator.closing(until)) as found:
            for closed in found:
                if self._ends_at(node, pass_):
                    return
                self._room.take()
                if closed is not None:
                    yield self._message(node.node, closed)

    def _message(
        self, node: Aggregate | StreamJoin | Table | Processor | Reorder | WallClock, closed: Any
    ) -> Message:
        if isinstance(node, Reorder):
            return closed
        if isinstance(node, Processor):
            key, at = closed
            assert node.timers is not None, "only timers come due"
            return EmittedResult(node.timers.changelog, self._partition, key, None, at, JSON)
        if isinstance(node, WallClock):
            key, at = closed
            return EmittedResult(node.store.changelog, self._partition, key, None, at, JSON)
        if isinstance(node, StreamJoin) and isinstance(closed, Unpaired):
            return unpaired_message(node, self._partition, closed)
        key, result, timestamp = closed[:3]
        store = node.store
        serde = store.value if store.window is None else window_serde(store.value)
        return EmittedResult(store.changelog, self._partition, key, result, timestamp, serde)
