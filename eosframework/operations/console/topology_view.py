"""The topology as its page draws it: steps in sub-topologies, topics, tables, and their edges.

Sources and sinks have no box: the topic next to them says the same. Internal topics are edges, and
dead letters, late records and retries are badges of their steps.

Internal: no module here is public.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eosframework.topology.graph.description import Arrow, Box, BoxKind, Diagram, draw
from eosframework.topology.graph.graph import (
    Aggregate,
    Function,
    Graph,
    JoinSide,
    Lookup,
    Processor,
    Sink,
    Source,
    Step,
    StreamJoin,
    TableOutput,
)
from eosframework.topology.graph.walk import AnyNode
from eosframework.topology.spec.keyed_spec import short
from eosframework.txnid import rows_topic


@dataclass(frozen=True, slots=True)
class Code:
    """A function of the user.

    Args:
        name: as the topology names it.
        file: its source file; None: not known, as for built-in functions.
        line: of its definition.
    """

    name: str
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Badge:
    """A mark of a box: records that leave the normal way there.

    Args:
        kind: `dead`, `late` or `retry`.
        steps: names under which they are counted.
        text: description for people.
        link: address of the page about them; empty: there is none.
    """

    kind: str
    steps: tuple[str, ...]
    text: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class ViewNode:
    """A box.

    Args:
        kind: `step`, `topic` or `table`.
        label: for display, without modules.
        about: second line; empty: none.
        name: the step as messages name it, the topic or the table.
        part: name of the sub-topology of a step; None: of a topic or a table.
        stores: names of the stores that a step keeps.
    """

    id: str
    kind: str
    label: str
    about: str
    name: str
    part: str | None = None
    functions: tuple[Code, ...] = ()
    stores: tuple[str, ...] = ()
    badges: tuple[Badge, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewEdge:
    """The way of records between two boxes.

    Args:
        label: a predicate, the name of an internal topic, or `rows`.
        topic: that the records pass; None: they stay in their task.
        is_read: the edge leads from the topic to a step.
        is_side: rows that a join looks up.
    """

    source: str
    target: str
    label: str = ""
    topic: str | None = None
    is_read: bool = False
    is_side: bool = False


@dataclass(frozen=True, slots=True)
class TopologyView:
    """A topology as its page draws it.

    Args:
        parts: names of the sub-topologies.
    """

    parts: tuple[str, ...]
    nodes: tuple[ViewNode, ...]
    edges: tuple[ViewEdge, ...]

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return asdict(self)


def view_of(graph: Graph) -> TopologyView:
    """Return the view of a graph."""
    diagram = draw(graph)
    return TopologyView(diagram.parts, *_Contracted(graph, diagram).result())


class _Contracted:
    """A diagram without boxes that only name the topic next to them."""

    def __init__(self, graph: Graph, diagram: Diagram) -> None:
        self._graph = graph
        self._boxes = {box.id: box for box in diagram.boxes}
        self._internal = _internal_topics(graph)
        self._arrows = [arrow for arrow in diagram.arrows if not self._is_badge(arrow)]
        self._badges: dict[str, list[Badge]] = {}

    def result(self) -> tuple[tuple[ViewNode, ...], tuple[ViewEdge, ...]]:
        edges = [_edge(arrow) for arrow in self._arrows]
        for box in self._boxes.values():
            if self._is_retry(box):
                edges = [edge for edge in edges if box.id not in (edge.source, edge.target)]
        for box in self._boxes.values():
            if self._is_passage(box, edges):
                self._move_badges(box, [edge.source for edge in edges if edge.target == box.id])
                edges = _without(box, edges, label=self._label_of(box))
        used = {end for edge in edges for end in (edge.source, edge.target)}
        boxes = [b for b in self._boxes.values() if b.id in used]
        nodes = tuple(_node(box, tuple(self._badges_of(box))) for box in boxes)
        return nodes, tuple(dict.fromkeys(edges))

    def _is_badge(self, arrow: Arrow) -> bool:
        return arrow.is_side and arrow.label != "rows"

    def _is_retry(self, box: Box) -> bool:
        return isinstance(box.node, Source) and box.node.retry_of is not None

    def _is_passage(self, box: Box, edges: Iterable[ViewEdge]) -> bool:
        """Return whether an edge can stand for the box."""
        if isinstance(box.node, Sink | TableOutput):
            return True
        before = [edge.source for edge in edges if edge.target == box.id]
        after = [edge.target for edge in edges if edge.source == box.id]
        if isinstance(box.node, Source):
            # A source whose records go to topics without a step is all that its frame has.
            return any(not isinstance(self._boxes[one].node, Sink | TableOutput) for one in after)
        return (
            box.topic in self._internal and box.kind is not BoxKind.TABLE and bool(before and after)
        )

    def _label_of(self, box: Box) -> str:
        if isinstance(box.node, Source | Sink | TableOutput):
            return ""
        return self._internal.get(box.topic or "", "")

    def _move_badges(self, box: Box, before: Iterable[str]) -> None:
        """Keep the badges of a source at its topic, and those of a sink at the steps before."""
        if box.node is not None:
            for id_ in before:
                self._badges.setdefault(id_, []).extend(_badges(box.node))

    def _badges_of(self, box: Box) -> Iterator[Badge]:
        own = [] if box.node is None else list(_badges(box.node))
        same: dict[tuple[str, str, str], list[str]] = {}
        for badge in (*own, *self._badges.get(box.id, ())):
            same.setdefault((badge.kind, badge.text, badge.link), []).extend(badge.steps)
        for (kind, text, link), steps in same.items():
            yield Badge(kind, tuple(dict.fromkeys(steps)), text, link)


def _internal_topics(graph: Graph) -> dict[str, str]:
    """Return the internal topics with their short names."""
    found = {
        repartition.topic: repartition.topic.removeprefix(f"{graph.application}-").removesuffix(
            "-repartition"
        )
        for repartition in graph.repartitions
    }
    rows = {
        sink.topic: "rows"
        for sink in graph.table_sinks
        if sink.topic == rows_topic(graph.application, sink.name)
    }
    return {**found, **rows}


def _edge(arrow: Arrow) -> ViewEdge:
    return ViewEdge(arrow.source, arrow.target, arrow.label, is_side=arrow.is_side)


def _without(box: Box, edges: list[ViewEdge], label: str) -> list[ViewEdge]:
    """Return the edges with those through a box joined."""
    before = [edge for edge in edges if edge.target == box.id]
    after = [edge for edge in edges if edge.source == box.id]
    others = [edge for edge in edges if box.id not in (edge.source, edge.target)]
    is_source = isinstance(box.node, Source)
    joined = [
        ViewEdge(
            one.source,
            two.target,
            label or one.label or two.label,
            one.topic or two.topic or box.topic,
            one.is_read or two.is_read or is_source,
            one.is_side or two.is_side,
        )
        for one in before
        for two in after
    ]
    return [*others, *joined]


_STEP_PATH = re.compile(r"^\S+\.steps\[\d+\] ")
_MODULE = re.compile(r"[\w.<>]+:(?=\w)")


def _node(box: Box, badges: tuple[Badge, ...]) -> ViewNode:
    if box.node is None:
        kind = "table" if box.kind is BoxKind.TABLE else "topic"
        about = "table" if kind == "table" else ""
        return ViewNode(box.id, kind, box.label, about, box.label, badges=badges)
    node = box.node
    return ViewNode(
        box.id,
        "step",
        _MODULE.sub("", _STEP_PATH.sub("", node.name)),
        _about(node, box.stores),
        node.name,
        box.sub_topology,
        tuple(dict.fromkeys(_code(function) for function in _functions(node))),
        box.stores,
        badges,
    )


def _about(node: AnyNode, stores: tuple[str, ...]) -> str:
    """Return the store of a step, or the stream that it is declared in."""
    return ", ".join(stores) or str(getattr(node, "stream", ""))


def _functions(node: AnyNode) -> Iterator[Function]:
    match node:
        case Source():
            found: Iterable[Function | None] = (node.timestamp,)
        case Sink():
            found = (node.topic if isinstance(node.topic, Function) else None,)
        case Step():
            found = (node.function, *(predicate for predicate, _ in node.branches))
        case Aggregate():
            found = node.functions.values()
        case Processor():
            found = node.functions.values()
        case Lookup():
            found = (node.of, node.function)
        case JoinSide():
            found = (node.join.function,)
        case _:
            found = ()
    return (function for function in found if function is not None)


def _code(function: Function) -> Code:
    """Return a function with the place of its definition."""
    file, line = place_of(function.call)
    return Code(function.name, file, line)


def place_of(call: Callable[..., Any]) -> tuple[str | None, int | None]:
    """Return the file, relative to the working directory, and the line of a function or class."""
    while isinstance(call, functools.partial):
        call = call.func
    found = inspect.unwrap(call)
    code = getattr(found, "__code__", None)
    try:
        file = inspect.getsourcefile(found) if code is None else code.co_filename
        line = inspect.getsourcelines(found)[1] if code is None else code.co_firstlineno
    except (OSError, TypeError):  # made without source, or built in
        return None, None
    if file is None or file.startswith("<"):
        return None, None
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path), line


def _badges(node: AnyNode) -> Iterator[Badge]:
    policy = node.on_error
    if policy.topic is not None:
        yield Badge("dead", (node.name,), f"dead letters go to {policy.topic}", "/dead-letters")
    if policy.retry_ms:
        delays = ", ".join(map(short, policy.retry_ms))
        yield Badge("retry", (node.name,), f"failed records are retried after {delays}")
    if (late := _late_of(node)) is not None:
        yield Badge("late", (node.name,), late)


def _late_of(node: AnyNode) -> str | None:
    """Return the treatment of late records; None: a step has none."""
    match node:
        case Aggregate() if node.store.window is not None:
            topic = node.store.window.late
        case JoinSide(join=StreamJoin() as join):
            topic = join.late
        case _:
            return None
    return (
        "late records are dropped and counted" if topic is None else f"late records go to {topic}"
    )
