"""The generated code of tables and joins.

A change of a table is a record with the previous row. Filters and maps apply to both, so that a row
that no longer passes is emitted as deleted, and one that never passed is not emitted. Any other
step sees the changes as a stream, in which a deleted row has the value None.
"""

from __future__ import annotations

from dataclasses import replace

from eosframework.engine.codegen.code_writer import CodeWriter, Variables
from eosframework.engine.codegen.foreign_code import write_answers, write_foreign_side
from eosframework.engine.failures.failure_handler import Site
from eosframework.topology.graph.graph import (
    Aggregate,
    Answers,
    ForeignJoin,
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
    TableGroup,
    TableJoin,
    View,
)
from eosframework.topology.graph.node_kinds import with_value


def write_table(code: CodeWriter, depth: int, node: Table, current: Variables) -> None:
    """Write a table; a record without a key is skipped, as in Kafka Streams."""
    code.site = Site(node.name, node.on_error)
    change = code.operator(node, "change")
    if node.history_ms is not None:
        change += ".change"
    serde = current.key_serde
    code.line(depth, f"if {current.key} is not None:")
    key_bytes = code.variable("kb")
    code.line(depth + 1, f"{key_bytes} = {code.key_bytes(current, serde)}")
    changed, before = code.variable("c"), code.variable("o")
    given = f"{key_bytes}, {current.value}, {current.timestamp}, {current.now}"
    if (data := code.json_as_read(current, node.store.value)) is not None:
        given += f", {data}"
    code.line(depth + 1, f"{changed}, {before} = {change}({given})")
    if node.children:
        code.line(depth + 1, f"if {changed}:")
        code.children(
            depth + 2, node.children, replace(current, key_bytes=key_bytes, before=before)
        )
    code.write_keyless(depth, node, current)


def write_table_step(code: CodeWriter, depth: int, step: Step, current: Variables) -> None:
    """Write a filter or a map of a table, for the row and the previous row."""
    assert current.before is not None, "a change says what the row was"
    value, before = code.variable("v"), code.variable("o")
    for shown, row in ((value, current.value), (before, current.before)):
        code.line(depth, f"{shown} = {_shown(code, step.operator, step.function, row)}")
    code.line(depth, f"if {value} is not None or {before} is not None:")
    changed = replace(current, value=value, before=before)
    code.children(depth + 1, step.children, changed)


def write_lookup(code: CodeWriter, depth: int, node: Lookup, current: Variables) -> None:
    """Write a lookup; a record without a value or a key is skipped (`KStreamKTableJoinProcessor`).

    A left join emits a record without a key with no row.
    """
    code.site = Site(node.name, node.on_error)
    look = code.operator(node, "look")
    is_left = node.kind is JoinKind.LEFT
    key = current.key
    code.line(depth, f"if {current.value} is not None:")
    if node.of is not None:
        key = code.variable("k")
        of = code.function(node.of)
        code.line(depth + 1, f"{key} = {of}({code.record_of(current)})")
    is_own_key = key == current.key
    serde = node.view.key
    key_bytes = code.key_bytes(current, serde) if is_own_key else code.encode_key(key, serde)
    row = code.variable("r")
    has_past = isinstance(node.view.origin, Table) and node.view.origin.history_ms is not None
    time = f", {current.timestamp}, {current.now}" if has_past else ""
    code.line(depth + 1, f"{row} = None if {key} is None else {look}({key_bytes}{time})")
    join = code.function(node.function)
    code.line(depth + 1, "if True:" if is_left else f"if {row} is not None:")
    value = code.variable("v")
    found = f"None if {row} is None else {row}[0]" if is_left else f"{row}[0]"
    code.line(depth + 2, f"{value} = {join}({current.value}, {found})")
    changed = replace(current, value=value, before=None)
    code.children(depth + 2, node.children, changed)


def write_join_side(code: CodeWriter, depth: int, side: JoinSide, current: Variables) -> None:
    """Write the left or the right side of a join."""
    match side.join:
        case TableJoin():
            _write_table_side(code, depth, side.join, side.is_left, current)
        case StreamJoin():
            _write_stream_side(code, depth, side.join, side.is_left, current)
        case Answers():
            write_answers(code, depth, side.join, side.is_left, current)
        case ForeignJoin():
            write_foreign_side(code, depth, side.join, side.is_left, current)


def write_previous_value(
    code: CodeWriter, depth: int, node: Aggregate, key_bytes: str
) -> str | None:
    """Return the variable of an aggregate's previous value, if its changes are read as changes."""
    if not table_sides(node):
        return None
    look = code.operator(View(node.name, node, (), node.store.key), "look")
    before = code.variable("o")
    code.line(depth, f"{before} = {look}({key_bytes})")
    code.line(depth, f"if {before} is not None: {before} = {before}[0]")
    return before


def _write_table_side(
    code: CodeWriter, depth: int, join: TableJoin, is_left: bool, current: Variables
) -> None:
    assert current.before is not None, "tables say what a row was"
    code.site = Site(join.name, join.on_error)
    meet = f"{code.operator(join, 'meet')}.{'left' if is_left else 'right'}"
    result = code.variable("r")
    code.line(
        depth,
        f"{result} = {meet}({current.key_bytes}, {current.value}, {current.before}, "
        f"{current.timestamp})",
    )
    code.line(depth, f"if {result} is not None:")
    value, before, timestamp = (code.variable(kind) for kind in "vot")
    code.line(depth + 1, f"{value}, {before}, {timestamp} = {result}")
    changed = replace(current, value=value, before=before, timestamp=timestamp)
    code.children(depth + 1, join.children, changed)


def _write_stream_side(
    code: CodeWriter, depth: int, join: StreamJoin, is_left: bool, current: Variables
) -> None:
    """A record without a key or a value is skipped.

    A left join emits a left record without a key alone, as in Kafka Streams (KIP-962).
    """
    code.site = Site(join.name, join.on_error)
    meet = f"{code.operator(join, 'meet')}.{'left' if is_left else 'right'}"
    code.line(depth, f"if {current.value} is not None and {current.key} is not None:")
    key_bytes, results = code.variable("kb"), code.variable("r")
    code.line(depth + 1, f"{key_bytes} = {code.key_bytes(current, join.key)}")
    code.line(
        depth + 1,
        f"{results} = {meet}({key_bytes}, {current.value}, {current.timestamp}, {current.now})",
    )
    policy = Policy.DEAD_LETTER if join.late else Policy.SKIP
    site = code.name("site", Site(join.name, OnError(policy, join.late)))
    code.line(depth + 1, f"if {results} is None: state.late({site}, m, {current.now}, out)")
    value, timestamp, now = code.variable("v"), code.variable("t"), code.variable("now")
    code.line(depth + 1, f"for {value}, {timestamp}, {now} in {results} or ():")
    changed = replace(
        current,
        now=now,
        written=now,
        value=value,
        timestamp=timestamp,
        key_bytes=key_bytes,
        key_serde=join.key,
        before=None,
    )
    code.children(depth + 2, join.children, changed)
    if not join.keeps_unpaired[0 if is_left else 1]:
        code.write_keyless(depth, join, current)
    if join.keeps_unpaired[0 if is_left else 1]:
        _write_alone(code, depth, join, is_left, current)


def _write_alone(
    code: CodeWriter, depth: int, join: StreamJoin, is_left: bool, current: Variables
) -> None:
    code.site = Site(join.name, join.on_error)
    code.line(depth, f"elif {current.value} is not None:")
    values = f"{current.value}, None" if is_left else f"None, {current.value}"
    value = code.variable("v")
    code.line(depth + 1, f"{value} = {code.function(join.function)}({values})")
    code.children(depth + 1, join.children, replace(current, value=value, before=None))


def write_unpaired(code: CodeWriter, join: StreamJoin) -> None:
    """Write the emission of records without a match whose interval has passed."""
    code.site = Site(join.name, join.on_error)
    key = code.stored_key(3, join.key, join.store)
    by = code.function(join.function)
    code.line(3, f"v = {by}(m.entry_value, None) if m.is_left else {by}(None, m.entry_value)")
    code.line(3, "t, h, kb = m.timestamp()[1], None, m.key()")
    code.children(3, join.children, Variables(key, "v", "t", "h", "kb", join.key, written=None))


def _shown(code: CodeWriter, operator: Operator, function: Function, row: str) -> str:
    call = f"{code.name('call', with_value(function))}({row})"
    if operator is Operator.FILTER:
        return f"{row} if {row} is not None and {call} else None"
    return f"None if {row} is None else {call}"


def table_sides(node: Aggregate) -> list[Node]:
    """Return the children that take the changes of an aggregate as changes of a table."""
    return [
        child
        for child in node.children
        if isinstance(child, TableGroup)
        or (isinstance(child, JoinSide) and isinstance(child.join, TableJoin))
    ]
