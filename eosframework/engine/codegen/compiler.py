"""Compilation of sub-topologies: each source with its following steps becomes one function."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType

from eosframework.engine.calls.flights import FlightPlan
from eosframework.engine.codegen.batch_code import is_batch
from eosframework.engine.codegen.compile_context import NO_CONTEXT, CompileContext, Slots
from eosframework.engine.codegen.generated_run import Run
from eosframework.engine.codegen.generator import (
    generate_emission,
    generate_release,
    generate_source,
)
from eosframework.engine.conversions import event_time
from eosframework.engine.failures.refused_outputs import OutputLimits
from eosframework.engine.operators.watermarks import WATERMARK_KEY
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    JoinSide,
    Keyed,
    Order,
    Processor,
    Reorder,
    Source,
    StreamJoin,
    SubTopology,
    Table,
    WallClock,
)
from eosframework.topology.graph.timed_topics import TimedTopic, moves_time
from eosframework.topology.graph.walk import nodes_of
from eosframework.transactions.ports import Message

RUN_RECORDS = 125
"""The most records of a run: they and their outputs are still in the processor's cache when the
outputs are produced."""


RUN_BYTES = 4 * 2**20
"""The most bytes of a run: its outputs are about as large, and wait for its end."""


@dataclass(frozen=True, slots=True)
class CompiledSource:
    """A source with its following steps, as one function.

    Args:
        run: see `Run`.
        code: the code object of `run`, by which its frame is found in a traceback.
        text: the generated code, for reading.
        takes_all_at_once: batch operators take all messages before the first one is run.
        calls: the part that runs ahead; None: no step calls a coroutine.
    """

    source: Source
    run: Run
    code: CodeType
    text: str
    takes_all_at_once: bool
    calls: FlightPlan | None = None

    @property
    def is_table(self) -> bool:
        """True if its records are rows of a table."""
        return self.source.is_table

    def in_runs(
        self, messages: Sequence[Message], size_bytes: int = 0
    ) -> Iterator[Sequence[Message]]:
        """Divide messages into runs; batch operators take all of them in one.

        Args:
            messages: of one partition.
            size_bytes: their estimated size; runs of large messages are shorter.
        """
        records = RUN_RECORDS
        if size_bytes > RUN_BYTES:
            records = max(1, min(records, len(messages) * RUN_BYTES // size_bytes))
        if len(messages) <= records or self.takes_all_at_once:
            yield messages
            return
        for start in range(0, len(messages), records):
            yield messages[start : start + records]

    def time_of(self, message: Message) -> int:
        """Return a message's event time, or its own timestamp where it has none; 0 of a watermark.

        Decoding errors and failing functions are reported when the record is run.
        """
        if message.key() == WATERMARK_KEY:
            return 0
        return event_time(self.source, message)


@dataclass(frozen=True, slots=True)
class Emission:
    """The steps that follow a keyed node which emits its results later.

    Args:
        node: emits results with the key of its store.
        run: as that of a source; its messages are `Emitted`.
    """

    node: Aggregate | StreamJoin | Processor | Reorder | WallClock
    run: Run


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """A compiled sub-topology: a function for each source topic, and its keyed nodes.

    Args:
        sources: by topic.
        keyed: the keyed nodes in the order of their slots.
        emissions: each after those whose records may reach it.
        paced_by: the timed topics whose watermarks move stream time; empty: its records do.
        own_times: the other source topics whose records move stream time.
        limits: known limits of output topics, by topic.
    """

    part: SubTopology
    sources: dict[str, CompiledSource]
    keyed: tuple[Keyed, ...]
    emissions: tuple[Emission, ...]
    paced_by: Mapping[str, TimedTopic] = field(default_factory=dict[str, TimedTopic])
    own_times: Collection[str] = ()
    limits: Mapping[str, OutputLimits] = field(default_factory=dict[str, OutputLimits])

    @property
    def merges(self) -> bool:
        """True if results depend on the order in which the records of several sources are run.

        Results follow from times of writing, and a reorder step has an order of its own. Rows that
        are looked up as they arrive have neither.
        """
        in_order = () if self.part.reorder is None else self.part.reorder.followers
        rows = (source.topic for source in self.part.sources if source.is_table)
        return not self.paced_by or any(topic not in in_order for topic in rows)

    def is_table(self, partition: TopicPartition) -> bool:
        """Return whether the records of a source partition are rows of a table."""
        return self.sources[partition.topic].is_table

    def in_turn(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return partitions in the order in which records of equal time are run.

        Table rows come first, so that a record joins the row of its own time.
        """
        return sorted(partitions, key=lambda p: (not self.is_table(p), p))


def compile_part(part: SubTopology, context: CompileContext = NO_CONTEXT) -> CompiledPart:
    """Compile a sub-topology.

    Raises:
        TopologyError: it has batch operators, and pyarrow is missing.
    """
    paced_by = {} if context.is_sorted else _paced_by(part, context.timed_topics)
    own_times = _own_times(part, context.timed_topics) if paced_by else ()
    slots = Slots(
        context,
        has_windows=_closes(part),
        has_ttl=any(store.ttl_ms is not None for store in part.stores),
        ahead_ms=_ahead_of(part),
        has_watermarks=bool(paced_by),
        reorder=part.reorder if paced_by else None,
        own_times=own_times,
        timeless=_timeless(part),
        closes_first=_closes_first(part, is_sorted=context.is_sorted) and not paced_by,
    )
    sources = {source.topic: _compiled_source(source, slots) for source in part.sources}
    emissions: list[Emission] = []
    # The code of an emission may reach further nodes that emit.
    while len(emissions) < len(slots.emitting):
        node = slots.emitting[len(emissions)]
        emissions.append(Emission(node, _emission_of(node, part, slots)))
    keyed = tuple(slots.keyed)
    return CompiledPart(part, sources, keyed, tuple(emissions), paced_by, own_times, context.limits)


def _emission_of(
    node: Aggregate | StreamJoin | Processor | Reorder | WallClock,
    part: SubTopology,
    slots: Slots,
) -> Run:
    if isinstance(node, Reorder):
        held = [source for source in part.sources if source.topic in node.followers]
        return generate_release(held, slots)
    return generate_emission(node, slots)


def _paced_by(part: SubTopology, timed: Mapping[str, TimedTopic]) -> dict[str, TimedTopic]:
    """Return the timed topics that move a sub-topology's stream time.

    Rows of a table move no time, unless there is nothing else.
    """
    found = [source for source in part.sources if source.topic in timed]
    moving = [source for source in found if moves_time(part, source)]
    return {source.topic: timed[source.topic] for source in moving or found}


def _timeless(part: SubTopology) -> tuple[str, ...]:
    """Return the topics whose records are looked up only, so that other records move time.

    A row with a later time would make records late that are in order among themselves.
    """
    still = [s for s in part.sources if not moves_time(part, s) and not _goes_on(s)]
    return tuple(source.topic for source in still) if len(still) < len(part.sources) else ()


def _goes_on(source: Source) -> bool:
    """Return whether further steps receive the changes of a table's rows."""
    return any(not isinstance(child, Table) or child.children for child in source.children)


def _own_times(part: SubTopology, timed: Mapping[str, TimedTopic]) -> tuple[str, ...]:
    """Return the topics without watermarks that move a sub-topology's stream time."""
    own = (s for s in part.sources if s.topic not in timed and s.retry_of is None)
    return tuple(source.topic for source in own if moves_time(part, source))


def _ahead_of(part: SubTopology) -> int | None:
    """Return the limit on event times of late results, which may stem from every source."""
    limits = [source.ahead_ms for source in part.sources if source.ahead_ms is not None]
    return max(limits) if limits and len(limits) == len(part.sources) else None


def _closes_first(part: SubTopology, *, is_sorted: bool) -> bool:
    """Return whether a record's time closes windows, and lets timers fire, before it is run.

    A reorder step does it so. A function with timers sees the same without one.
    """
    if is_sorted and part.reorder is not None:
        return True
    timed = (n for n in nodes_of(part) if isinstance(n, Processor) and n.timers is not None)
    return any(node.order is Order.TIME for node in timed)


def _closes(part: SubTopology) -> bool:
    """Return whether stream time alone can emit results."""
    if part.reorder is not None:
        return True
    if any(isinstance(node, Processor) and node.timers is not None for node in nodes_of(part)):
        return True
    joins = (node.join for node in nodes_of(part) if isinstance(node, JoinSide))
    waits = any(isinstance(j, StreamJoin) and j.emit is Emit.CLOSE for j in joins)
    windows = (store.window for store in part.stores if store.window is not None)
    return waits or any(window.is_timed for window in windows)


def compile_source(source: Source, context: CompileContext = NO_CONTEXT) -> CompiledSource:
    """Compile a source alone, without the windows and stores of its sub-topology."""
    return _compiled_source(source, Slots(context))


def _compiled_source(source: Source, slots: Slots) -> CompiledSource:
    run, text, calls = generate_source(source, slots)
    takes_all = any(map(is_batch, source.children))
    return CompiledSource(source, run, run.__code__, text, takes_all, calls)
