"""The generated code of joins of two tables by a foreign key (ADR 41)."""

from __future__ import annotations

from dataclasses import replace

from eosframework.engine.codegen.code_writer import CodeWriter, Variables
from eosframework.engine.failures.failure_handler import Site
from eosframework.serialization.serdes import CHECKED_BYTES, Serde
from eosframework.topology.graph.graph import Answers, ForeignJoin, Subscribe


def write_subscribe(code: CodeWriter, depth: int, node: Subscribe, current: Variables) -> None:
    """Write the subscription of a left row; a record without a key is skipped, as by a table.

    The row is encoded before the function gets it, which may change it in place.
    """
    code.site = Site(node.name, node.on_error)
    change = f"{code.operator(node, 'subscribe')}.change"
    code.line(depth, f"if {current.key} is not None:")
    key_bytes, row, foreign = (code.variable(kind) for kind in ("kb", "b", "f"))
    code.line(depth + 1, f"{key_bytes} = {code.key_bytes(current, node.key)}")
    code.line(depth + 1, f"{row} = {foreign} = None")
    code.line(depth + 1, f"if {current.value} is not None:")
    data = code.json_as_read(current, node.row) or code.value_bytes(depth + 2, current, node.row)
    code.line(depth + 2, f"{row} = {data}")
    code.line(depth + 2, f"{foreign} = {code.function(node.of)}({code.record_of(current)})")
    sent, key, message = code.variable("s"), code.variable("kb"), code.variable("v")
    code.line(
        depth + 1,
        f"{row}, {sent} = {change}({key_bytes}, {row}, {foreign}, {current.timestamp})",
    )
    changed = replace(current, before=None)
    code.line(depth + 1, f"for {key}, {message} in {sent}:")
    asked = _message(changed, key, message, node.foreign)
    code.children(depth + 2, node.subscriptions, asked)
    code.line(depth + 1, f"if {row} is not None:")
    kept = replace(_message(changed, key_bytes, row, node.key), key=current.key)
    code.children(depth + 2, node.children, kept)
    code.write_keyless(depth, node, current)


def _message(current: Variables, key: str, value: str, serde: Serde) -> Variables:
    """Return the variables of a message of the join: its bytes, and the serde of its key."""
    encoded = (value, value, CHECKED_BYTES)
    return replace(current, key=key, value=value, key_bytes=key, key_serde=serde, encoded=encoded)


def write_answers(
    code: CodeWriter, depth: int, node: Answers, is_left: bool, current: Variables
) -> None:
    """Write the answer to a subscription, or the answers with a changed row."""
    code.site = Site(node.name, node.on_error)
    operator = code.operator(node, "answer")
    key_bytes = code.key_bytes(current, node.rows.key)
    given = f"{key_bytes}, {current.value}"
    if is_left:
        found = f"{operator}.left({given}, {current.timestamp})"
    else:
        assert current.before is not None, "a change has the previous row"
        found = f"{operator}.right({given}, {current.before}, {current.timestamp})"
    key, value, time = code.variable("kb"), code.variable("v"), code.variable("t")
    code.line(depth, f"for {key}, {value}, {time} in {found}:")
    answer = replace(_message(current, key, value, node.key), timestamp=time, before=None)
    code.children(depth + 1, node.children, answer)


def write_foreign_side(
    code: CodeWriter, depth: int, node: ForeignJoin, is_left: bool, current: Variables
) -> None:
    """Write the join of a left row, or of an answer."""
    code.site = Site(node.name, node.on_error)
    take = f"{code.operator(node, 'meet')}.{'left' if is_left else 'right'}"
    result, key_bytes = code.variable("r"), code.variable("kb")
    code.line(depth, f"{key_bytes} = {code.key_bytes(current, node.key)}")
    code.line(depth, f"{result} = {take}({key_bytes}, {current.value}, {current.timestamp})")
    code.line(depth, f"if {result} is not None:")
    value, before, time = (code.variable(kind) for kind in "vot")
    code.line(depth + 1, f"{value}, {before}, {time} = {result}")
    changed = replace(
        current,
        value=value,
        before=before,
        timestamp=time,
        key_bytes=key_bytes,
        key_serde=node.key,
        encoded=None,
    )
    code.children(depth + 1, node.children, changed)
