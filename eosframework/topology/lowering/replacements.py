"""The records that replace earlier records: changes of tables, and results of windows.

A table emits its changes: a changed row is sent again under its own key. Windows with `emit: each`
or `commit` do the same, under their key and with the window in the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eosframework.topology.lowering.parts import in_order
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.tabular import is_table, tables_along
from eosframework.topology.spec.topology_spec import TopologySpec
from eosframework.topology.spec.window_spec import Window

NEW_KEY = frozenset({"group_by", "select_key", "map"})
OWN_RECORDS = frozenset({"flat_map", "process", "deduplicate"})
"""Steps that create records of their own from changes, and may omit or withdraw some."""

SAME_VALUE = frozenset({"filter", "peek", "group_by", "select_key", "filter_batch"})


@dataclass(frozen=True, slots=True)
class Changes:
    """Records that may replace earlier records.

    Args:
        of: their origin, for messages.
        window: the windows whose results they are; None: they are rows by key.
        is_final: each window has one result, when it is closed.
        moved: the step that changed their key, for messages; None: they have their own key.
        is_shaped: a step changed the value, so that it no longer identifies the row or window.
    """

    of: str
    window: Window | None = None
    is_final: bool = False
    moved: str | None = None
    is_shaped: bool = False


@dataclass(frozen=True, slots=True)
class KnownChanges:
    """The changes among the records of a topology.

    Args:
        along: by stream, before each of its steps and at its end; None: they replace nothing.
        ends: by source, stream and branch.
    """

    along: Mapping[str, list[Changes | None]]
    ends: Mapping[str, Changes | None]


def known_changes(spec: TopologySpec) -> KnownChanges:
    """Return for each position in a topology without errors the changes among its records."""
    along: dict[str, list[Changes | None]] = {}
    ends: dict[str, Changes | None] = {
        name: Changes(f"table {name!r}") if is_table(spec, name) else None for name in spec.sources
    }
    for name in in_order(spec)[0]:
        stream = spec.streams[name]
        states = [_merged([ends.get(parent) for parent in stream.from_])]
        rows = tables_along(spec, stream)
        for i, step in enumerate(stream.steps):
            place = f"{name!r}, steps[{i}]"
            states.append(_after(step, states[-1], place, is_table=rows[i + 1]))
        along[name] = states
        for member in (name, *stream.branch_names):
            ends[member] = states[-1]
    return KnownChanges(along, ends)


def _merged(parents: list[Changes | None]) -> Changes | None:
    found = next((changes for changes in parents if changes is not None), None)
    if found is None or all(changes == found for changes in parents):
        return found
    return replace(found, is_shaped=True)


def _after(
    step: StepSpec, changes: Changes | None, place: str, *, is_table: bool
) -> Changes | None:
    """Return the changes among the records after a step."""
    if (keyed := step.aggregates) is not None:
        if keyed.window is None:
            return Changes(f"the table of {step.operator} in {place}")
        of = f"the windows of {step.operator} in {place}"
        return Changes(of, keyed.window.window(), is_final=keyed.emit == "close")
    if step.join is not None and is_table:
        return Changes(f"the join of tables in {place}")
    if step.operator in OWN_RECORDS or (step.join is not None and step.join.is_within):
        return None
    if changes is None:
        return None
    if step.operator in NEW_KEY:
        changes = replace(changes, moved=f"{step.operator} in {place}")
    several = step.operator == "flat_map_values"
    if several or (changes.window is not None and step.operator not in SAME_VALUE):
        return replace(changes, is_shaped=True)
    return changes
