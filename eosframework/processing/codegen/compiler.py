"""Compiles sub-topologies: each source, with everything behind it, becomes one function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType

from eosframework.processing.codegen.batch_lines import is_batch
from eosframework.processing.codegen.generator import Run, Writer
from eosframework.processing.codegen.source_lines import Slots
from eosframework.processing.event_times import event_time
from eosframework.processing.failures.refused_outputs import OutputLimits
from eosframework.processing.ports import Message
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import (
    Aggregate,
    Emit,
    JoinSide,
    Keyed,
    Processor,
    Source,
    StreamJoin,
    SubTopology,
    Table,
)
from eosframework.topology.graph.walk import nodes_of

RUN_RECORDS = 250
"""So many records and their outputs are still in the processor's cache when these are produced."""


RUN_BYTES = 4 * 2**20
"""So large a run of records may be: what they give is about as large, and waits for its end."""


@dataclass(frozen=True, slots=True)
class CompiledSource:
    """A source with everything behind it, as one function.

    Args:
        run: see `Run`.
        code: the code object of `run`, by which its frame is found in a traceback.
        text: the generated source, for reading.
    """

    source: Source
    run: Run
    code: CodeType
    text: str

    @property
    def is_table(self) -> bool:
        """Whether its records are rows."""
        return any(isinstance(child, Table) for child in self.source.children)

    @property
    def takes_all_at_once(self) -> bool:
        """Whether batch operators take all messages before the first one is run."""
        return any(map(is_batch, self.source.children))

    def in_runs(
        self, messages: Sequence[Message], size_bytes: int = 0
    ) -> Iterator[Sequence[Message]]:
        """Cut messages into what is best run at once; batch operators take all there are.

        Args:
            messages: of one partition.
            size_bytes: of all of them, estimated; a run of large ones is shorter.
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
        """Return a message's event time; of one that has none its own timestamp.

        That it does not decode, or its function fails, is found when it is run.
        """
        return event_time(self.source, message)


@dataclass(frozen=True, slots=True)
class Emission:
    """What follows a keyed node that gives its records when the task says so.

    Args:
        node: gives records with the key of its store.
        run: as that of a source; its messages are `Emitted`.
    """

    node: Aggregate | StreamJoin | Processor
    run: Run


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """A sub-topology: a function for each source topic, and what its keyed nodes need.

    Args:
        sources: by topic.
        keyed: the keyed nodes in the order of their slots.
        emissions: each after those whose records may reach it.
    """

    part: SubTopology
    sources: dict[str, CompiledSource]
    keyed: tuple[Keyed, ...]
    emissions: tuple[Emission, ...]

    def in_turn(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return partitions in the order in which records of the same time have their turn.

        Rows come first: a record meets the row of its own time.
        """
        return sorted(partitions, key=lambda p: (not self.sources[p.topic].is_table, p))


def compile_part(
    part: SubTopology,
    *,
    receipts: bool = False,
    batch_rows: int | None = None,
    closed_topics: Collection[str] = (),
    limits: Mapping[str, OutputLimits] | None = None,
    is_missing: Callable[[str], bool] | None = None,
) -> CompiledPart:
    """Compile a sub-topology.

    Args:
        part: the sub-topology.
        receipts: see `compile_source`.
        batch_rows: the most rows of a batch; None: as many as the slice has.
        closed_topics: no function of a sink may choose them.
        limits: by topic, what it is known to refuse; None: nothing is known.
        is_missing: tells whether a topic that one chose does not exist; None: nobody can tell.

    Raises:
        TopologyError: it has batch operators, and there is no pyarrow.
    """
    expires = any(store.ttl_ms is not None for store in part.stores)
    slots = Slots(
        has_windows=_closes(part),
        has_ttl=expires,
        batch_rows=batch_rows,
        closed_topics=closed_topics,
        ahead_ms=_ahead_of(part),
        limits=limits,
        is_missing=is_missing,
    )
    sources = {s.topic: compile_source(s, slots, receipts=receipts) for s in part.sources}
    emissions: list[Emission] = []
    while len(emissions) < len(slots.emitting):
        node = slots.emitting[len(emissions)]
        emissions.append(_compile_emission(node, slots))
    return CompiledPart(part, sources, tuple(slots.keyed), tuple(emissions))


def _ahead_of(part: SubTopology) -> int | None:
    """Return the limit for what keyed nodes give later, which may descend from every source."""
    limits = [source.ahead_ms for source in part.sources if source.ahead_ms is not None]
    return max(limits) if limits and len(limits) == len(part.sources) else None


def _closes(part: SubTopology) -> bool:
    """Tell whether something goes on because of time alone."""
    if any(isinstance(node, Processor) and node.timers is not None for node in nodes_of(part)):
        return True
    joins = (node.join for node in nodes_of(part) if isinstance(node, JoinSide))
    waits = any(isinstance(j, StreamJoin) and j.emit is Emit.CLOSE for j in joins)
    return waits or any(store.window is not None for store in part.stores)


def compile_source(
    source: Source, slots: Slots | None = None, *, receipts: bool = False
) -> CompiledSource:
    """Compile what happens to each record of `source`.

    With `receipts` the function must be given `ReceiptedOutputs` to append to.
    """
    writer = Writer(slots or Slots())
    writer.write_source(source, receipts=receipts)
    run, text = writer.compiled(source.name)
    return CompiledSource(source, run, run.__code__, text)


def _compile_emission(node: Aggregate | StreamJoin | Processor, slots: Slots) -> Emission:
    writer = Writer(slots)
    writer.write_emission(node)
    run, _ = writer.compiled(node.name)
    return Emission(node, run)
