"""The tables and joins of a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from eosframework.serialization.serdes import Serde
from eosframework.topology.spec.emission import Emit

if TYPE_CHECKING:
    from eosframework.topology.graph.graph import (
        Aggregate,
        Function,
        Node,
        OnError,
        Operator,
        Store,
    )


class JoinKind(StrEnum):
    """The kind of a join: which sides have results even without a match."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"

    @property
    def needs(self) -> tuple[bool, bool]:
        """True, for left and right, if a result needs that side."""
        return self is not JoinKind.OUTER, self is JoinKind.INNER


@dataclass(frozen=True, slots=True, eq=False)
class GlobalTable:
    """A topic that each process of the application keeps in memory."""

    name: str
    topic: str
    key: Serde
    value: Serde


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Keeps the rows of a topic: for each key its last value, or all values of a period.

    Args:
        row: serde of the rows; without history also of the store.
        history_ms: how long earlier versions of rows are kept; None: current rows only.
        children: nodes that receive the changes of its rows.
    """

    name: str
    stream: str
    store: Store
    row: Serde
    history_ms: int | None
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])

    @property
    def emit(self) -> Emit:
        """Changes are sent on at once."""
        return Emit.EACH


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Rows by key, as a join finds them.

    Args:
        name: of the source or stream, for messages.
        origin: the node that stores the rows.
        steps: filters and maps in order; they run at each lookup.
        key: serde of the keys.
    """

    name: str
    origin: Table | Aggregate | TableJoin | GlobalTable
    steps: tuple[tuple[Operator, Function], ...]
    key: Serde

    def then(self, name: str, operator: Operator, function: Function) -> View:
        """Return the view with one more step."""
        return View(name, self.origin, (*self.steps, (operator, function)), self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """Joins each record of a stream with the row that a table has for it.

    Args:
        function: takes the value and the row.
        of: takes the record and returns the row's key; None: the record's own key.
    """

    name: str
    stream: str
    view: View
    kind: JoinKind
    function: Function
    of: Function | None
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])


@dataclass(frozen=True, slots=True, eq=False)
class TableJoin:
    """A table whose rows are computed from the rows of two others.

    Args:
        function: takes the left and the right row.
        children: nodes that receive the changes of its rows.
    """

    name: str
    stream: str
    left: View
    right: View
    kind: JoinKind
    function: Function
    on_error: OnError
    children: list[Node] = field(default_factory=list["Node"])


@dataclass(frozen=True, slots=True, eq=False)
class StreamJoin:
    """Joins records of two streams whose times are close.

    Args:
        function: takes the left and the right value.
        store: buffer for records, of bytes.
        key: serde of the keys.
        values: serdes of the left and the right values.
        before_ms: how much earlier than a left record a right one may be.
        after_ms: how much later.
        grace_ms: how long after the end of an interval late records are accepted.
        late: topic for records that arrive after their interval and its grace are over.
    """

    name: str
    stream: str
    kind: JoinKind
    function: Function
    store: Store
    key: Serde
    values: tuple[Serde, Serde]
    before_ms: int
    after_ms: int
    grace_ms: int
    on_error: OnError
    late: str | None = None
    children: list[Node] = field(default_factory=list["Node"])

    @property
    def keeps_unpaired(self) -> tuple[bool, bool]:
        """True, for left and right, if a record without a match has a result."""
        return self.kind is not JoinKind.INNER, self.kind is JoinKind.OUTER

    @property
    def emit(self) -> Emit:
        """CLOSE if records without a match have results once their interval is over."""
        return Emit.EACH if self.kind is JoinKind.INNER else Emit.CLOSE


@dataclass(frozen=True, slots=True, eq=False)
class JoinSide:
    """One of the two inputs of a join; it follows the node whose records or changes it takes."""

    join: TableJoin | StreamJoin
    is_left: bool

    @property
    def name(self) -> str:
        """Name of the side in messages."""
        return f"{self.join.name}, {'left' if self.is_left else 'right'}"

    @property
    def stream(self) -> str:
        """The stream that the join is declared in."""
        return self.join.stream

    @property
    def on_error(self) -> OnError:
        """The policy of the join."""
        return self.join.on_error

    @property
    def children(self) -> list[Node]:
        """Nodes that receive the results of either side."""
        return self.join.children


Joins = Table | Lookup | JoinSide
"""The nodes of this module that can follow other nodes."""
