"""A check of the functions of grouped tables: `subtract` must undo `add`.

Nothing else finds it: a wrong aggregate looks like a right one. So the driver takes each row that
was added back at once, and compares the aggregate with the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from eosframework.engine.operators.folds import owned
from eosframework.topology.graph.graph import Aggregate, Function, Graph
from eosframework.topology.graph.node_kinds import FoldKind
from eosframework.topology.graph.walk import nodes_of


def check_undoing(graph: Graph, found: list[str]) -> None:
    """Let the aggregates of grouped tables check their functions with each added row.

    Args:
        graph: of the application; its functions are replaced.
        found: gets a message for the first row of each aggregate that is not undone.
    """
    for part in graph.sub_topologies:
        for node in nodes_of(part):
            if isinstance(node, Aggregate) and node.of_table and "subtract" in node.functions:
                add = node.functions["add"]
                if not isinstance(add.call, _Checked):
                    node.functions["add"] = Function(add.name, _Checked(node, add.call))
                checked = cast("_Checked", node.functions["add"].call)
                checked.found = found


class _Checked:
    """`add`, with a check that `subtract` undoes it."""

    def __init__(self, node: Aggregate, add: Callable[[Any, Any], Any]) -> None:
        self.found: list[str] = []
        self._node = node
        self._add = add
        self._subtract = node.functions["subtract"]
        self._has_initial = node.fold is FoldKind.AGGREGATE

    def __call__(self, aggregate: Any, row: Any) -> Any:
        before, given = owned(aggregate), owned(row)
        after = self._add(aggregate, row)
        undone = self._subtract.call(owned(after), owned(given))
        # The group of a single row may be deleted: the next one starts with the initial aggregate.
        is_gone = undone is None and self._has_initial and same(before, self._initial())
        if not is_gone and not same(before, undone):
            self._report(before, given, after, undone)
        return after

    def _initial(self) -> Any:
        return self._node.functions["initial"].call()

    def _report(self, before: Any, row: Any, after: Any, undone: Any) -> None:
        message = (
            f"{self._node.name}: {self._subtract.name} does not undo "
            f"{self._node.functions['add'].name}. With the row {row!r:.120} the aggregate "
            f"{before!r:.120} became {after!r:.120}, and without it again {undone!r:.120}; "
            f"expected the aggregate before"
        )
        if not any(one.startswith(f"{self._node.name}: ") for one in self.found):
            self.found.append(message)


def same(one: Any, other: Any) -> bool:
    """Return whether two aggregates are equal; floats may differ by what rounding leaves."""
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        ours, theirs = cast("Mapping[Any, Any]", one), cast("Mapping[Any, Any]", other)
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        mine, others = cast("Sequence[Any]", one), cast("Sequence[Any]", other)
        return len(mine) == len(others) and all(map(same, mine, others))
    return one == other
