"""The lines of tables and joins.

A change of a table is a record with what the row was before. Filters and maps show both, so that
a row that ceases to pass goes on as deleted, and one that never passed does not go on. Any other
step sees the changes as a stream, in which a deleted row has the value None.
"""

from __future__ import annotations

from dataclasses import replace

from eosframework.processing.codegen.source_lines import Current, Site
from eosframework.processing.codegen.window_lines import WindowLines
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import (
    Aggregate,
    Function,
    JoinKind,
    JoinSide,
    Lookup,
    Node,
    OnError,
    Operator,
    Policy,
    Step,
    StreamJoin,
    Table,
    TableJoin,
    View,
)


class JoinLines(WindowLines):
    """Writes tables, lookups, and both sides of joins."""

    def _write_table(self, depth: int, node: Table, current: Current) -> None:
        """A record without a key is passed over, as in Kafka Streams."""
        self._site = Site(node.name, node.on_error)
        change = self._operator(node, "change")
        if node.history_ms is not None:
            change += ".change"
        serde = current.key_serde
        self._line(depth, f"if {current.key} is not None:")
        key_bytes = self._variable("kb")
        self._line(depth + 1, f"{key_bytes} = {self._key_bytes(current, serde)}")
        changed, before = self._variable("c"), self._variable("o")
        self._line(
            depth + 1,
            f"{changed}, {before} = {change}({key_bytes}, {current.value}, "
            f"{current.timestamp}, stream_time)",
        )
        if node.children:
            self._line(depth + 1, f"if {changed}:")
            self._write_children(
                depth + 2, node.children, replace(current, key_bytes=key_bytes, before=before)
            )

    def _write_shown(self, depth: int, step: Step, current: Current) -> None:
        """A filter or a map of a table: of the row as it is, and as it was."""
        assert current.before is not None, "a change says what the row was"
        value, before = self._variable("v"), self._variable("o")
        for shown, row in ((value, current.value), (before, current.before)):
            self._line(depth, f"{shown} = {self._shown(step.operator, step.function, row)}")
        self._line(depth, f"if {value} is not None or {before} is not None:")
        changed = replace(current, value=value, before=before)
        self._write_children(depth + 1, step.children, changed)

    def _write_lookup(self, depth: int, node: Lookup, current: Current) -> None:
        """As `KStreamKTableJoinProcessor`: a value of None is passed over, and so is a key of None.

        Of a left join a record with a key of None goes on without a row.
        """
        self._site = Site(node.name, node.on_error)
        look = self._operator(node, "look")
        is_left = node.kind is JoinKind.LEFT
        key = current.key
        self._line(depth, f"if {current.value} is not None:")
        if node.of is not None:
            key = self._variable("k")
            of = self._function(node.of)
            self._line(depth + 1, f"{key} = {of}({self._record(current)})")
        key_bytes = self._looked_up(key, node.view.key, current)
        row = self._variable("r")
        has_past = isinstance(node.view.origin, Table) and node.view.origin.history_ms is not None
        time = f", {current.timestamp}, stream_time" if has_past else ""
        self._line(depth + 1, f"{row} = None if {key} is None else {look}({key_bytes}{time})")
        join = self._function(node.function)
        self._line(depth + 1, "if True:" if is_left else f"if {row} is not None:")
        value = self._variable("v")
        found = f"None if {row} is None else {row}[0]" if is_left else f"{row}[0]"
        self._line(depth + 2, f"{value} = {join}({current.value}, {found})")
        changed = replace(current, value=value, before=None)
        self._write_children(depth + 2, node.children, changed)

    def _write_side(self, depth: int, side: JoinSide, current: Current) -> None:
        match side.join:
            case TableJoin():
                self._write_table_side(depth, side.join, side.is_left, current)
            case StreamJoin():
                self._write_stream_side(depth, side.join, side.is_left, current)

    def _write_before(self, depth: int, node: Aggregate, key_bytes: str) -> str | None:
        """Return the variable with what an aggregate was, where a join of tables needs it."""
        if not table_sides(node):
            return None
        look = self._operator(View(node.name, node, (), node.store.key), "look")
        before = self._variable("o")
        self._line(depth, f"{before} = {look}({key_bytes})")
        self._line(depth, f"if {before} is not None: {before} = {before}[0]")
        return before

    def _write_table_side(
        self, depth: int, join: TableJoin, is_left: bool, current: Current
    ) -> None:
        assert current.before is not None, "tables say what a row was"
        self._site = Site(join.name, join.on_error)
        meet = f"{self._operator(join, 'meet')}.{'left' if is_left else 'right'}"
        result = self._variable("r")
        self._line(
            depth,
            f"{result} = {meet}({current.key_bytes}, {current.value}, {current.before}, "
            f"{current.timestamp})",
        )
        self._line(depth, f"if {result} is not None:")
        value, before, timestamp = (self._variable(kind) for kind in "vot")
        self._line(depth + 1, f"{value}, {before}, {timestamp} = {result}")
        changed = replace(current, value=value, before=before, timestamp=timestamp)
        self._write_children(depth + 1, join.children, changed)

    def _write_stream_side(
        self, depth: int, join: StreamJoin, is_left: bool, current: Current
    ) -> None:
        """A record without a key or a value is passed over.

        Of a left join a left record without a key goes on alone, as in Kafka Streams (KIP-962).
        """
        self._site = Site(join.name, join.on_error)
        meet = f"{self._operator(join, 'meet')}.{'left' if is_left else 'right'}"
        self._line(depth, f"if {current.value} is not None and {current.key} is not None:")
        key_bytes, results = self._variable("kb"), self._variable("r")
        self._line(depth + 1, f"{key_bytes} = {self._key_bytes(current, join.key)}")
        self._line(
            depth + 1,
            f"{results} = {meet}({key_bytes}, {current.value}, {current.timestamp}, stream_time)",
        )
        policy = Policy.DEAD_LETTER if join.late else Policy.SKIP
        site = self._name("site", Site(join.name, OnError(policy, join.late)))
        self._line(depth + 1, f"if {results} is None: state.late({site}, m, stream_time, out)")
        value, timestamp = self._variable("v"), self._variable("t")
        self._line(depth + 1, f"for {value}, {timestamp} in {results} or ():")
        changed = replace(
            current,
            value=value,
            timestamp=timestamp,
            key_bytes=key_bytes,
            key_serde=join.key,
            before=None,
        )
        self._write_children(depth + 2, join.children, changed)
        if join.keeps_unpaired[0 if is_left else 1]:
            self._write_alone(depth, join, is_left, current)

    def _write_alone(self, depth: int, join: StreamJoin, is_left: bool, current: Current) -> None:
        self._site = Site(join.name, join.on_error)
        self._line(depth, f"elif {current.value} is not None:")
        values = f"{current.value}, None" if is_left else f"None, {current.value}"
        value = self._variable("v")
        self._line(depth + 1, f"{value} = {self._function(join.function)}({values})")
        self._write_children(depth + 1, join.children, replace(current, value=value, before=None))

    def _write_unpaired(self, join: StreamJoin) -> None:
        """What happens to each record that met nothing, when its interval is over."""
        self._site = Site(join.name, join.on_error)
        key = self._decode(3, "m.key()", join.key)
        by = self._function(join.function)
        self._line(3, f"v = {by}(m.entry_value, None) if m.is_left else {by}(None, m.entry_value)")
        self._line(3, "t, h, kb = m.timestamp()[1], None, m.key()")
        self._write_children(3, join.children, Current(key, "v", "t", "h", "kb", join.key))

    def _operator(self, node: Table | Lookup | TableJoin | StreamJoin | View, kind: str) -> str:
        """Return the variable with a node's operator."""
        slot = self._slots.of(node)
        return self._used.setdefault(slot, f"{kind}{slot}")

    def _looked_up(self, key: str, serde: Serde, current: Current) -> str:
        return self._key_bytes(current, serde) if key == current.key else self._encode(key, serde)

    def _shown(self, operator: Operator, function: Function, row: str) -> str:
        call = f"{self._function(function)}({row})"
        if operator is Operator.FILTER:
            return f"{row} if {row} is not None and {call} else None"
        return f"None if {row} is None else {call}"


def table_sides(node: Aggregate) -> list[Node]:
    """Return what takes the changes of an aggregate as those of a table."""
    return [
        child
        for child in node.children
        if isinstance(child, JoinSide) and isinstance(child.join, TableJoin)
    ]
