"""Tables and joins in a graph."""

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
    """Which records and rows have a result although there is nothing on the other side."""

    INNER = "inner"
    LEFT = "left"
    OUTER = "outer"

    @property
    def needs(self) -> tuple[bool, bool]:
        """Whether a result needs a left side, and a right one."""
        return self is not JoinKind.OUTER, self is JoinKind.INNER


@dataclass(frozen=True, slots=True, eq=False)
class GlobalTable:
    """A topic that each process of the application has whole, in memory."""

    name: str
    topic: str
    key: Serde
    value: Serde


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Keeps the rows of a topic: for each key its last value, or all of a stated time.

    Args:
        row: serde of the rows; the store's where it has no past.
        history_ms: how far back rows are known; None: the current ones only.
        children: nodes that take the changes of its rows.
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
        """Changes go on at once."""
        return Emit.EACH


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Rows by key, as a join finds them.

    Args:
        name: of the source or stream, for messages.
        origin: what has the rows.
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
    """A table whose rows are made from the rows of two others.

    Args:
        function: takes the left and the right row.
        children: nodes that take the changes of its rows.
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
        store: where records wait; of bytes.
        key: serde of the keys.
        values: serdes of the left and the right values.
        before_ms: how much earlier than a left record a right one may be.
        after_ms: how much later.
        grace_ms: how long records that come out of order are waited for.
        late: topic that takes records that come when their interval is over.
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
        """Whether left, and right records that meet nothing have a result."""
        return self.kind is not JoinKind.INNER, self.kind is JoinKind.OUTER

    @property
    def emit(self) -> Emit:
        """Whether there is something that goes on when an interval is over."""
        return Emit.EACH if self.kind is JoinKind.INNER else Emit.CLOSE


@dataclass(frozen=True, slots=True, eq=False)
class JoinSide:
    """One of the two ways into a join, behind what it takes its records or changes from."""

    join: TableJoin | StreamJoin
    is_left: bool

    @property
    def name(self) -> str:
        """What it goes by in messages."""
        return f"{self.join.name}, {'left' if self.is_left else 'right'}"

    @property
    def stream(self) -> str:
        """The stream that the join is declared in."""
        return self.join.stream

    @property
    def on_error(self) -> OnError:
        """That of the join."""
        return self.join.on_error

    @property
    def children(self) -> list[Node]:
        """What takes the results of either side."""
        return self.join.children


Joins = Table | Lookup | JoinSide
"""The nodes of this module that follow others."""
