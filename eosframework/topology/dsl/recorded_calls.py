"""What the builder's calls leave behind, in the order in which they were made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from eosframework.errors import TopologyError
from eosframework.serialization import references
from eosframework.serialization.schemas import Registered
from eosframework.serialization.serdes import SerdeLike, serde_of
from eosframework.topology.graph.batch_columns import columns_of
from eosframework.topology.spec.loaded import Place
from eosframework.topology.spec.topology_spec import (
    DeadLetter,
    SinkSpec,
    SourceSpec,
    StepSpec,
    TableSpec,
)

FunctionLike = Callable[..., Any] | str
"""A function, or the `module:attribute` that it can be imported by."""

SchemaLike = Mapping[str, str | type] | type[BaseModel] | str | Any
"""Types of columns by name, a pydantic model, a pyarrow.Schema, or the name of one of these."""


@dataclass(eq=False, slots=True)
class Node:
    """One call on a stream.

    Args:
        branches: predicate (None: the records left) and first node of each branch.
        source: name of the source, of a node that stands for one.
        is_branch: whether the node stands for the records that a branch took.
        joined: what its step joins with.
    """

    place: Place
    parents: tuple[Node, ...] = ()
    step: StepSpec | None = None
    name: str | None = None
    policy: str | DeadLetter | None = None
    children: list[Node] = field(default_factory=list["Node"])
    sinks: list[tuple[SinkSpec | TableSpec, Place]] = field(
        default_factory=list[tuple["SinkSpec | TableSpec", Place]]
    )
    branches: list[tuple[str | None, Node]] = field(default_factory=list[tuple[str | None, "Node"]])
    source: str | None = None
    is_branch: bool = False
    joined: Node | None = None

    @property
    def is_origin(self) -> bool:
        """Whether streams start here: a source, or the records that a branch took."""
        return self.source is not None or self.is_branch


@dataclass(slots=True)
class Recording:
    """All calls on one topology, with the objects they were given by name."""

    application: str
    place: Place
    nodes: list[Node] = field(default_factory=list[Node])
    sources: dict[str, SourceSpec] = field(default_factory=dict[str, SourceSpec])
    objects: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, node: Node) -> Node:
        """Record one call."""
        for parent in node.parents:
            parent.children.append(node)
        if node.joined is not None:
            node.joined.children.append(node)
        self.nodes.append(node)
        return node

    def serde(self, wanted: SerdeLike) -> str:
        """Return the name that the spec refers to a serde by."""
        if isinstance(wanted, str):
            return wanted
        if isinstance(wanted, Registered):
            return str(wanted)
        serde = serde_of(wanted)
        return self._remember(serde.name, serde)

    def model(self, wanted: str | type[BaseModel]) -> str:
        """Return the name that the spec refers to a model by."""
        return wanted if isinstance(wanted, str) else self.serde(wanted)

    def schema(self, operator: str, wanted: SchemaLike) -> str | dict[str, str]:
        """Return what the spec says of the columns that a batch operator reads.

        Raises:
            TopologyError: it is no schema.
        """
        if isinstance(wanted, str):
            return wanted
        try:
            columns = columns_of(wanted)
        except TopologyError as error:
            raise TopologyError(f"{caller()}: {operator}: {error}") from error
        if isinstance(wanted, Mapping):
            return dict(columns.types)
        return self._remember(references.name_of(wanted) or "schema", wanted)

    def reference(self, operator: str, function: Any) -> str:
        """Return the name that the spec refers to a function by."""
        if isinstance(function, str):
            return function
        if not callable(function):
            raise TopologyError(
                f"{caller()}: {operator} was given a {type(function).__name__}: {function!r}; "
                f"expected a function or 'module:function'"
            )
        name = references.name_of(function) or references.place_of(function)
        return self._remember(name, function)

    def _remember(self, name: str, target: Any) -> str:
        unique, count = name, 1
        while self.objects.setdefault(unique, target) != target:
            count += 1
            unique = f"{name}#{count}"
        return unique


_OURS = PurePath(__file__).parent


def caller() -> Place:
    """Return where the user's code called into this package."""
    frame = inspect.currentframe()
    while frame and frame.f_back and PurePath(frame.f_code.co_filename).parent == _OURS:
        frame = frame.f_back
    if frame is None:
        return Place("topology")
    positions = list(frame.f_code.co_positions())
    instruction = frame.f_lasti // 2
    column = positions[instruction][2] if instruction < len(positions) else None
    return Place(frame.f_code.co_filename, frame.f_lineno, (column or 0) + 1)


def plain_name(text: str) -> str:
    """Return `text` with what the grammar of names does not allow replaced by `_`."""
    lower = text.lower()
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "_" for c in lower)
