"""The context of a compilation: slots of keyed nodes, and a check of the unit of event times."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import structlog

from eosframework.engine.conversions import TopicChoice
from eosframework.engine.failures.refused_outputs import OutputLimits
from eosframework.engine.operators.refused_rows import RefusedRows
from eosframework.records import moment
from eosframework.serialization.changes import SameTask
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    Keyed,
    Node,
    Processor,
    Reorder,
    Source,
    StreamJoin,
    WallClock,
)
from eosframework.topology.graph.timed_topics import TimedTopic


@dataclass(frozen=True, slots=True)
class CompileContext:
    """Facts outside of a topology that its generated code depends on.

    Args:
        receipts: the outputs get receipts; the functions append to `ReceiptedOutputs`.
        batch_rows: the most rows of a batch; None: the whole slice.
        limits: by topic, the known limits on its records.
        is_missing: returns whether a chosen topic does not exist; None: cannot be checked.
        own_topics: repartition topics, which may contain watermarks.
        timed_topics: those whose reader depends on time.
        refused_rows: rows that a database refused; None: no database decides transactions.
        is_sorted: records come in the order of their times of writing, without watermarks.
        same_task: returns whether two encoded keys of a topic have one partition; None: unknown.
    """

    receipts: bool = False
    batch_rows: int | None = None
    limits: Mapping[str, OutputLimits] = field(default_factory=dict[str, OutputLimits])
    is_missing: Callable[[str], bool] | None = None
    own_topics: Collection[str] = ()
    timed_topics: Mapping[str, TimedTopic] = field(default_factory=dict[str, TimedTopic])
    is_sorted: bool = False
    refused_rows: RefusedRows | None = None
    same_task: Callable[[str, bytes, bytes], bool] | None = None

    def same_task_of(self, topic: str) -> SameTask:
        """Return a function that compares the partitions of two encoded keys of a topic."""
        known = self.same_task
        if known is None:
            return lambda one, other: False
        return lambda one, other: known(topic, one, other)


NO_CONTEXT = CompileContext()
"""The context of a topology alone."""


class Slots:
    """Numbers the keyed nodes of a sub-topology, each once however many paths lead to it.

    Args:
        context: of the compilation.
        has_windows: stream time alone can emit results.
        has_ttl: entries of a store expire.
        ahead_ms: the limit on event times of late results; None: there is none.
        has_watermarks: watermarks move the stream time of the task.
        reorder: the step that holds records whose order matters; None: all are run at once.
        own_times: the source topics without watermarks whose records move stream time.
        timeless: the source topics whose records never move it.
        closes_first: a record closes windows before it is run, as a reorder step does it.
    """

    def __init__(
        self,
        context: CompileContext,
        *,
        has_windows: bool = False,
        has_ttl: bool = False,
        ahead_ms: int | None = None,
        has_watermarks: bool = False,
        reorder: Reorder | None = None,
        own_times: Collection[str] = (),
        timeless: Collection[str] = (),
        closes_first: bool = False,
    ) -> None:
        self.context = context
        self.has_windows = has_windows
        self.has_ttl = has_ttl
        self.ahead_ms = ahead_ms
        self.has_watermarks = has_watermarks
        self.reorder = reorder
        self.own_times = own_times
        self.timeless = timeless
        self.closes_first = closes_first
        self.choice = TopicChoice(context.is_missing)
        self.keyed: list[Keyed] = []
        self.emitting: list[Aggregate | StreamJoin | Processor | Reorder | WallClock] = []

    def held(self, source: Source) -> tuple[Node, ...]:
        """Return the children of a source that get its records from the reorder step."""
        return () if self.reorder is None else self.reorder.followers.get(source.topic, ())

    def step_of(self, clock: WallClock) -> Processor:
        """Return the step that has a function which the wall clock calls."""
        steps = (node for node in self.keyed if isinstance(node, Processor))
        return next(step for step in steps if clock in step.wall_clock)

    def of(self, node: Keyed) -> int:
        """Return the slot of a node."""
        if node not in self.keyed:
            self.keyed.append(node)
            emits = isinstance(node, Aggregate | StreamJoin | Processor | Reorder | WallClock)
            if emits and node.emit is not Emit.EACH:
                self.emitting.append(node)
        return self.keyed.index(node)


YEAR_MS = 365 * 24 * 3_600_000


class UnitCheck:
    """Warns once of a source's event time that fits its record's own timestamp in another unit.

    A time in seconds is a valid time of January 1970: windows of it close with the next record.

    Args:
        source: its name.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._warned = False

    def __call__(self, time_ms: int, own_ms: int) -> None:
        """Check an event time that is more than a year before the record's own timestamp.

        Args:
            time_ms: the event time, taken as milliseconds.
            own_ms: the record's own timestamp.
        """
        if self._warned:
            return
        for factor in (1_000, 1_000_000):
            if abs(time_ms * factor - own_ms) < YEAR_MS:
                self._warned = True
                structlog.get_logger("eosframework.worker").warning(
                    "event_time_unit",
                    source=self._source,
                    event_time=moment(time_ms),
                    record_timestamp=moment(own_ms),
                    fix=f"return milliseconds: times {factor:,} it fits the record's own timestamp",
                )
                return
