"""The generated code of aggregates, windows and deduplication.

A record may change several windows, or none; it is late if the operator returns None. If a record
moves stream time to the end of a window, the window closes directly after it, so that the division
of records into slices and transactions makes no difference.
"""

from __future__ import annotations

from dataclasses import replace

from eosframework.engine.codegen.code_writer import CodeWriter, Variables
from eosframework.engine.codegen.join_code import table_sides, write_previous_value
from eosframework.engine.failures.failure_handler import Site
from eosframework.topology.graph.graph import Aggregate, Emit, OnError, Policy
from eosframework.topology.spec.keyed_spec import Window


def write_aggregate(code: CodeWriter, depth: int, node: Aggregate, current: Variables) -> None:
    """Write an aggregate; a record without a key or a value is skipped, as in Kafka Streams."""
    _write_keyed(code, depth, node, current)
    code.write_keyless(depth, node, current)


def _write_keyed(code: CodeWriter, depth: int, node: Aggregate, current: Variables) -> None:
    code.site = Site(node.name, node.on_error)
    slot = code.slots.of(node)
    update = code.operators.setdefault(slot, f"update{slot}")
    code.line(depth, f"if {current.key} is not None and {current.value} is not None:")
    key_bytes = code.variable("kb")
    code.line(depth + 1, f"{key_bytes} = {code.key_bytes(current, node.store.key)}")
    if node.store.window is not None:
        keyed = replace(current, key_bytes=key_bytes, key_serde=node.store.key)
        _write_windowed(code, depth + 1, node, node.store.window, update, keyed)
        return
    call = f"{update}({key_bytes}, {current.value}, {current.timestamp})"
    if node.emit is not Emit.EACH:
        code.line(depth + 1, call)
        return
    value, timestamp = code.variable("v"), code.variable("t")
    before = write_previous_value(code, depth + 1, node, key_bytes)
    code.line(depth + 1, f"{value}, {timestamp} = {call}")
    changed = replace(
        current,
        value=value,
        timestamp=timestamp,
        key_bytes=key_bytes,
        key_serde=node.store.key,
    )
    if before is not None:
        changes = replace(changed, before=before)
        code.children(depth + 1, table_sides(node), changes)
    others = [child for child in node.children if child not in table_sides(node)]
    code.children(depth + 1, others, changed)


def _write_windowed(
    code: CodeWriter,
    depth: int,
    node: Aggregate,
    window: Window,
    update: str,
    current: Variables,
) -> None:
    code.site = Site(node.name, node.on_error)
    results = code.variable("r")
    code.line(
        depth,
        f"{results} = {update}({current.key_bytes}, {current.value}, {current.timestamp}, "
        f"{current.now})",
    )
    policy = Policy.DEAD_LETTER if window.late else Policy.SKIP
    site = code.name("site", Site(node.name, OnError(policy, window.late)))
    code.line(depth, f"if {results} is None: state.late({site}, m, {current.now}, out)")
    if node.emit is not Emit.EACH:
        return
    value, timestamp = code.variable("v"), code.variable("t")
    code.line(depth, "else:")
    code.line(depth + 1, f"for {value}, {timestamp} in {results}:")
    changed = replace(current, value=value, timestamp=timestamp)
    code.children(depth + 2, node.children, changed)
