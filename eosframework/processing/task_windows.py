"""The windows of one task: the results of closing windows, and the removal of ended ones."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from eosframework.errors import RecordFailed
from eosframework.operators.handlers import Handler
from eosframework.operators.joins.stream_joins import Unpaired
from eosframework.operators.reordering import Reordering
from eosframework.operators.windows.closing import NEVER, Alarms, TimedState, WindowOperator
from eosframework.processing.codegen.compiler import CompiledPart, Emission
from eosframework.processing.codegen.generated_run import Failed, State
from eosframework.processing.failures.failure_handler import Site
from eosframework.processing.ports import Message, Output
from eosframework.processing.transaction.late_results import (
    EmittedResult,
    LateResults,
    unpaired_message,
)
from eosframework.serialization.serdes import JSON, window_serde
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    Processor,
    Reorder,
    StreamJoin,
    Table,
)


@dataclass(frozen=True, slots=True)
class TimedNode:
    """A keyed node whose state ends with time.

    Args:
        emission: the steps that follow it, if its results are emitted later.
    """

    node: Aggregate | StreamJoin | Table | Processor | Reorder
    operator: TimedState
    emission: Emission | None

    @property
    def idle_seconds(self) -> float | None:
        """The time without a record after which its windows close; None: never."""
        window = None if isinstance(self.node, Processor) else self.node.store.window
        return None if window is None or not window.close_idle_ms else window.close_idle_ms / 1000

    @property
    def windows(self) -> WindowOperator:
        """The operator of a node with windows."""
        assert isinstance(self.operator, WindowOperator), "only windows close by the clock"
        return self.operator


def timed_nodes(compiled: CompiledPart, operators: Sequence[Any]) -> list[TimedNode]:
    """Return the nodes of a task whose state ends with time."""
    emissions = {id(emission.node): emission for emission in compiled.emissions}
    return [
        TimedNode(node, timed, emissions.get(id(node)))
        for node, operator in zip(compiled.keyed, operators, strict=True)
        if isinstance(timed := _timed(operator), TimedState)
        and isinstance(node, Aggregate | StreamJoin | Table | Processor | Reorder)
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
    """

    def __init__(
        self,
        nodes: Sequence[TimedNode],
        alarms: Alarms,
        partition: int,
        results: LateResults,
    ) -> None:
        self.alarm = alarms.closes
        self._ends = alarms.ends
        self._closing = [node for node in nodes if node.node.emit is Emit.CLOSE]
        self._ending = [node for node in nodes if node.node.emit is not Emit.CLOSE]
        self._idle_times = sorted({n.idle_seconds for n in self._closing if n.idle_seconds})
        self._partition = partition
        self._results = results
        self._is_known = False

    def begin(self) -> None:
        """Load the stores into the operators; before the first record.

        Raises:
            RunError: a store was made for other windows.
        """
        if not self._is_known:
            for node in (*self._closing, *self._ending):
                node.operator.begin()
            self._is_known = True

    def reset(self) -> None:
        """Discard what the operators know of the stores, whose content may change."""
        self._is_known = False
        self.alarm.due = self._ends.due = NEVER

    def close(
        self, message: Message, out: list[Output], now: int, failed: Failed, state: State
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
        """
        try:
            self.close_at(out, now, failed, state)
        except RecordFailed as error:
            raise RecordFailed(str(error), offset=message.offset() + 1) from error

    def close_before(
        self, message: Message, out: list[Output], now: int, failed: Failed, state: State
    ) -> None:
        """Run the same before the record that moved stream time; see `close`.

        Raises:
            RecordFailed: a result failed; the record was not run.
        """
        try:
            self.close_at(out, now, failed, state)
        except RecordFailed as error:
            raise RecordFailed(str(error), offset=message.offset()) from error

    def close_at(self, out: list[Output], now: int, failed: Failed, state: State) -> None:
        """Run the steps that follow each window that `now` closes, without a record.

        Raises:
            RecordFailed: a result failed; its window and the later ones are open.
        """
        try:
            self._close_all(now, out, failed, state)
        finally:
            self.alarm.due = min((n.operator.due() for n in self._closing), default=NEVER)

    def remove_ended(self, now: int) -> None:
        """Remove the windows that have ended without a result to emit; before a commit."""
        if now < self._ends.due:
            return
        for node in self._ending:
            for _ in node.operator.closing(now):
                pass
        self._ends.due = min((n.operator.due() for n in self._ending), default=NEVER)

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
        state: State,
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
        for node in nodes:
            until = node.windows.close_by_clock()
            self._close_one(node, until, out, now, failed, state)
        self.alarm.due = min((n.operator.due() for n in self._closing), default=NEVER)

    def _close_all(self, now: int, out: list[Output], failed: Failed, state: State) -> None:
        for node in self._closing:
            if isinstance(node.operator, Reordering):
                self._release(node, node.operator, now, out, failed, state)
            else:
                self._close_one(node, now, out, now, failed, state)

    def _release(
        self,
        node: TimedNode,
        reordering: Reordering,
        now: int,
        out: list[Output],
        failed: Failed,
        state: State,
    ) -> None:
        """Run the held records that `now` has passed, and displace those beyond the limit.

        A record's time of writing closes windows before the record is run: none accepts it, and a
        sliding window that is closed, but not emitted yet, would never be.
        """
        if node.emission is None or now < reordering.due():
            return

        def in_order() -> Generator[Message]:
            with closing(reordering.closing(now)) as found:
                for record in found:
                    for other in self._closing:
                        if other is not node:
                            self._close_one(
                                other, record.written, out, record.written, failed, state
                            )
                    yield record

        with closing(in_order()) as given:
            messages = self._results.of(node.node, given, out, failed)
            node.emission.run(messages, out, now, failed, state)
        self._displace(node.node, reordering, out, failed)

    def _displace(
        self, node: Any, reordering: Reordering, out: list[Output], failed: Failed
    ) -> None:
        """Let `on_error` decide on the first held records while too many are held."""
        with closing(reordering.displaced()) as found:
            for record in found:
                failed(Site(node.name, node.on_error), record, reordering.overfull(), out)

    def _close_one(
        self,
        node: TimedNode,
        until: int,
        out: list[Output],
        now: int,
        failed: Failed,
        state: State,
    ) -> None:
        if node.operator.due() > until or node.emission is None:
            return
        # Closing the generator lets the operator record the results before one that failed.
        with closing(self._closed(node, until)) as given:
            messages = self._results.of(node.node, given, out, failed)
            node.emission.run(messages, out, now, failed, state)

    def _closed(self, node: TimedNode, until: int) -> Generator[Message]:
        with closing(node.operator.closing(until)) as found:
            for closed in found:
                yield self._message(node.node, closed)

    def _message(
        self, node: Aggregate | StreamJoin | Table | Processor | Reorder, closed: Any
    ) -> Message:
        if isinstance(node, Reorder):
            return closed
        if isinstance(node, Processor):
            key, at = closed
            assert node.timers is not None, "only timers come due"
            return EmittedResult(node.timers.changelog, self._partition, key, None, at, JSON)
        if isinstance(node, StreamJoin) and isinstance(closed, Unpaired):
            return unpaired_message(node, self._partition, closed)
        key, result, timestamp = closed[:3]
        store = node.store
        serde = store.value if store.window is None else window_serde(store.value)
        return EmittedResult(store.changelog, self._partition, key, result, timestamp, serde)
