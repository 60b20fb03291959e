"""A graph as boxes and arrows, for renderers: mermaid text, and the console's picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from eosframework.topology.graph.graph import (
    Aggregate,
    Function,
    GlobalTable,
    Graph,
    JoinSide,
    Lookup,
    Processor,
    Sink,
    Source,
    StreamJoin,
    SubTopology,
    Table,
)
from eosframework.topology.graph.walk import AnyNode, dead_letter_topics, followers_of, nodes_of


class BoxKind(StrEnum):
    """Kinds of boxes."""

    STEP = "step"
    TOPIC = "topic"
    INTERNAL_TOPIC = "internal topic"
    DEAD_LETTERS = "dead letters"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Box:
    """A step, a topic or a table.

    Args:
        id: short and unique in the diagram.
        label: for display.
        sub_topology: of a step; None: of a topic or a table.
        topic: that the box shows, or that the step reads or writes; None: none, or one chosen for
            each record.
        stores: names of the stores that a step keeps.
    """

    id: str
    kind: BoxKind
    label: str
    sub_topology: str | None = None
    topic: str | None = None
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrow:
    """The way of records between two boxes.

    Args:
        source: id of a box.
        target: id of a box.
        label: a predicate, `rows`, `late` or `on error`; empty: every record.
        is_side: not the way of a record that is processed normally.
    """

    source: str
    target: str
    label: str = ""
    is_side: bool = False


@dataclass(frozen=True, slots=True)
class Diagram:
    """Boxes and arrows; steps first, then topics, then tables.

    Args:
        parts: names of the sub-topologies.
    """

    parts: tuple[str, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def draw(graph: Graph) -> Diagram:
    """Return the diagram of a graph."""
    drawing = _Drawing(graph)
    for part in graph.sub_topologies:
        drawing.add_part(part)
    drawing.add_tables()
    boxes = (*drawing.steps, *drawing.topics.values(), *drawing.tables.values())
    return Diagram(tuple(p.name for p in graph.sub_topologies), boxes, tuple(drawing.arrows))


def target_of(sink: Sink) -> str:
    """Return the topic that a sink writes, as text."""
    if isinstance(sink.topic, Function):
        return f"a topic chosen by {sink.topic.name}"
    return sink.topic


@dataclass(slots=True)
class _Drawing:
    graph: Graph
    steps: list[Box] = field(default_factory=list[Box])
    topics: dict[str, Box] = field(default_factory=dict[str, Box])
    tables: dict[str, Box] = field(default_factory=dict[str, Box])
    arrows: list[Arrow] = field(default_factory=list[Arrow])
    _ids: dict[int, str] = field(default_factory=dict[int, str])

    def add_part(self, part: SubTopology) -> None:
        for node in nodes_of(part):
            topic = node.topic if isinstance(node, Source | Sink) else None
            self.steps.append(
                Box(
                    self._id(node),
                    BoxKind.STEP,
                    _label(node),
                    part.name,
                    topic if isinstance(topic, str) else None,
                    _stores(node),
                )
            )
            self._add_arrows(node)

    def add_tables(self) -> None:
        for table_sink in self.graph.table_sinks:
            for table in table_sink.tables:
                box = self.tables.setdefault(
                    table.table,
                    Box(f"d{len(self.tables)}", BoxKind.TABLE, table.table, None, table_sink.topic),
                )
                self.arrows.append(Arrow(self._topic(table_sink.topic), box.id))

    def _add_arrows(self, node: AnyNode) -> None:
        own = self._id(node)
        if isinstance(node, Source):
            self.arrows.append(Arrow(self._topic(node.topic), own))
        if isinstance(node, Sink):
            self.arrows.append(Arrow(own, self._topic(target_of(node))))
        for label, child in followers_of(node):
            self.arrows.append(Arrow(own, self._id(child), label))
        self.arrows.extend(self._side_arrows(node, own))

    def _side_arrows(self, node: AnyNode, own: str) -> Iterator[Arrow]:
        if isinstance(node, Lookup):
            match node.view.origin:
                case GlobalTable() as table:
                    yield Arrow(self._topic(table.topic), own, "rows", is_side=True)
                case Table() | Aggregate() as table:
                    yield Arrow(self._id(table), own, "rows", is_side=True)
                case _:
                    pass
        if (late := _late_topic(node)) is not None:
            yield Arrow(own, self._topic(late), "late", is_side=True)
        if node.on_error.topic is not None and not isinstance(node, Sink):
            yield Arrow(own, self._topic(node.on_error.topic), "on error", is_side=True)

    def _id(self, node: object) -> str:
        return self._ids.setdefault(id(node), f"n{len(self._ids)}")

    def _topic(self, name: str) -> str:
        box = self.topics.get(name)
        if box is None:
            box = Box(f"t{len(self.topics)}", self._kind(name), name, topic=name)
            self.topics[name] = box
        return box.id

    def _kind(self, name: str) -> BoxKind:
        if any(repartition.topic == name for repartition in self.graph.repartitions):
            return BoxKind.INTERNAL_TOPIC
        is_dead = name in dead_letter_topics(self.graph)
        return BoxKind.DEAD_LETTERS if is_dead else BoxKind.TOPIC


def _label(node: AnyNode) -> str:
    match node:
        case Source():
            return f"read {node.topic}"
        case Sink():
            return f"write {target_of(node)}"
        case _:
            return node.name


def _stores(node: AnyNode) -> tuple[str, ...]:
    match node:
        case Aggregate() | Table():
            return (node.store.name,)
        case Processor():
            return tuple(store.name for store in node.stores.values())
        case JoinSide() if isinstance(node.join, StreamJoin):
            return (node.join.store.name,)
        case _:
            return ()


def _late_topic(node: AnyNode) -> str | None:
    match node:
        case Aggregate():
            return node.store.window.late if node.store.window is not None else None
        case JoinSide() if isinstance(node.join, StreamJoin):
            return node.join.late
        case _:
            return None
