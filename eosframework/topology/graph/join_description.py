"""Descriptions of tables and joins as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eosframework.topology.graph.join_nodes import (
    GlobalTable,
    JoinSide,
    Lookup,
    StreamJoin,
    Table,
    TableJoin,
)
from eosframework.topology.graph.walk import AnyNode


def described_joins(nodes: Iterable[AnyNode]) -> list[dict[str, Any]]:
    """Return a description of each table and join among `nodes`, each once."""
    joins = [node.join if isinstance(node, JoinSide) else node for node in nodes]
    found = {id(j): j for j in joins if isinstance(j, Table | Lookup | TableJoin | StreamJoin)}
    return [
        {
            "name": node.name,
            "stream": node.stream,
            **_own(node),
            "on_error": {"policy": str(node.on_error.policy), "topic": node.on_error.topic},
            "next": [child.name for child in node.children],
        }
        for node in found.values()
    ]


def described_global_table(table: GlobalTable) -> dict[str, Any]:
    """Return the description of a global table."""
    return {
        "name": table.name,
        "topic": table.topic,
        "key": table.key.name,
        "value": table.value.name,
    }


def _own(node: Table | Lookup | TableJoin | StreamJoin) -> dict[str, Any]:
    match node:
        case Table():
            return {
                "operator": "table",
                "store": node.store.name,
                "value": node.row.name,
                "history_ms": node.history_ms,
            }
        case Lookup():
            functions = {"by": node.function.name}
            if node.of is not None:
                functions["key"] = node.of.name
            return {
                "operator": "join",
                "kind": str(node.kind),
                "table": node.view.name,
                "functions": functions,
            }
        case TableJoin():
            return {
                "operator": "join",
                "kind": str(node.kind),
                "tables": [node.left.name, node.right.name],
                "functions": {"by": node.function.name},
            }
        case StreamJoin():
            return {
                "operator": "join",
                "kind": str(node.kind),
                "functions": {"by": node.function.name},
                "store": node.store.name,
                "before_ms": node.before_ms,
                "after_ms": node.after_ms,
                "grace_ms": node.grace_ms,
                "late": node.late,
            }
