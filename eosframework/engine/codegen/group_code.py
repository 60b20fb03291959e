"""The generated code of grouped tables.

The group of a row follows from the row alone, so the old row of a change shows the group that it
was added to. A row without a group is added nowhere, and taken back nowhere.
"""

from __future__ import annotations

from dataclasses import replace

from eosframework.engine.codegen.code_writer import CodeWriter, Variables
from eosframework.engine.codegen.join_code import table_sides, write_previous_value
from eosframework.engine.failures.failure_handler import Site
from eosframework.engine.operators.binding import showing
from eosframework.serialization.changes import by_group, halves
from eosframework.topology.graph.graph import Aggregate, Emit, TableGroup


def write_table_group(code: CodeWriter, depth: int, node: TableGroup, current: Variables) -> None:
    """Write the sending of a change to the groups of its rows."""
    assert current.before is not None, "tables say what a row was"
    code.site = Site(node.name, node.on_error)
    new, old = current.value, current.before
    if (shown := showing(node.view)) is not None:
        show = code.name("call", shown)
        new, old = code.variable("v"), code.variable("o")
        code.line(depth, f"{new} = {show}({current.value})")
        code.line(depth, f"{old} = {show}({current.before})")
    added = _write_group(code, depth, node, replace(current, value=new))
    code.line(
        depth, f"if {added} is None and {new} is not None: state.keyless.note({node.name!r}, m)"
    )
    code.site = Site(f"{node.name}, of the row before", node.on_error)
    taken = _write_group(code, depth, node, replace(current, value=old))
    code.site = Site(node.name, node.on_error)
    code.names["halves"] = halves
    same = code.name("same", code.slots.context.same_task_of(node.topic))
    key, change = code.variable("kb"), code.variable("c")
    code.line(depth, f"for {key}, {change} in halves({added}, {new}, {taken}, {old}, {same}):")
    changed = replace(
        current, value=change, before=None, key_bytes=key, key_serde=node.key, encoded=None
    )
    code.children(depth + 1, node.children, changed)


def _write_group(code: CodeWriter, depth: int, node: TableGroup, row: Variables) -> str:
    """Write the encoded key of a row's group, and return its variable."""
    key, key_bytes = code.variable("k"), code.variable("kb")
    by = code.function(node.function)
    code.line(depth, f"{key} = None if {row.value} is None else {by}({code.record_of(row)})")
    code.line(depth, f"{key_bytes} = {code.encode_key(key, node.key)}")
    return key_bytes


def write_table_aggregate(
    code: CodeWriter, depth: int, node: Aggregate, current: Variables
) -> None:
    """Write an aggregate of a grouped table."""
    code.site = Site(node.name, node.on_error)
    update = code.operator(node, "update")
    code.names["by_group"] = by_group
    key_bytes, new, old = code.variable("kb"), code.variable("v"), code.variable("o")
    record = code.key_bytes(current, node.store.key)
    code.line(depth, f"for {key_bytes}, {new}, {old} in by_group({record}, {current.value}):")
    call = f"{update}({key_bytes}, {new}, {old}, {current.timestamp})"
    if node.emit is not Emit.EACH:
        code.line(depth + 1, call)
        return
    before = write_previous_value(code, depth + 1, node, key_bytes)
    result, value, timestamp = code.variable("r"), code.variable("v"), code.variable("t")
    code.line(depth + 1, f"{result} = {call}")
    code.line(depth + 1, f"if {result} is not None:")
    code.line(depth + 2, f"{value}, {timestamp} = {result}")
    changed = replace(
        current,
        key=code.decode(depth + 2, key_bytes, node.store.key),
        value=value,
        timestamp=timestamp,
        key_bytes=key_bytes,
        key_serde=node.store.key,
    )
    if before is not None:
        code.children(depth + 2, table_sides(node), replace(changed, before=before))
    others = [child for child in node.children if child not in table_sides(node)]
    code.children(depth + 2, others, changed)
