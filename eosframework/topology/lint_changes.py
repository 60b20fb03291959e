"""Aggregates under a new key of records that replace earlier ones, which would count twice.

A table gives its changes: a row that changes goes on once more. Under the row's own key the new one
stands for the old one. Under another key nothing takes the old one back: a row that moves from one
group to another stays in the first, and one that stays is counted again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from eosframework.topology.loaded import Finding, LoadedApp
from eosframework.topology.parts import in_order
from eosframework.topology.step_spec import StepSpec
from eosframework.topology.tabular import is_table, tables_along

NEW_KEY = frozenset({"group_by", "select_key", "map"})
OWN_RECORDS = frozenset({"flat_map", "process"})
"""Steps whose functions make records of the changes, and may leave some out or take some back."""

ADDS_UP = frozenset({"count", "sum"})
"""Folds that are wrong for every record that comes again. Of a window's results, which do not move,
others may be right: the greatest is."""


@dataclass(frozen=True, slots=True)
class _Changes:
    """Records each of which replaces an earlier one.

    Args:
        of: what gives them, for messages.
        is_window: they are results of windows, given before the windows close.
        moved: the step that gave them a new key, for messages; None: they have their own.
    """

    of: str
    is_window: bool = False
    moved: str | None = None


def change_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about aggregates of changes, of a topology without other errors."""
    spec = app.spec
    ends: dict[str, _Changes | None] = {
        name: _Changes(f"table {name!r}") for name in spec.sources if is_table(spec, name)
    }
    for name in in_order(spec)[0]:
        stream = spec.streams[name]
        found = [changes for parent in stream.from_ if (changes := ends.get(parent)) is not None]
        changes = found[0] if found else None
        along = tables_along(spec, stream)
        for i, step in enumerate(stream.steps):
            if changes is not None and _counts_twice(step, changes):
                place = app.source_map.find(("streams", name, "steps", i, step.operator))
                yield Finding(place, "moved-row", _message(name, step, changes))
            changes = _after(step, changes, f"{name!r}, steps[{i}]", is_table=along[i + 1])
        for member in (name, *stream.branch_names):
            ends[member] = changes


def _counts_twice(step: StepSpec, changes: _Changes) -> bool:
    if step.aggregates is None or changes.moved is None:
        return False
    return not changes.is_window or step.operator in ADDS_UP


def _after(
    step: StepSpec, changes: _Changes | None, place: str, *, is_table: bool
) -> _Changes | None:
    """Return what is known of the records behind a step."""
    if (keyed := step.aggregates) is not None:
        if keyed.window is None:
            return _Changes(f"the table of {step.operator} in {place}")
        windows = _Changes(f"the windows of {step.operator} in {place}", is_window=True)
        return None if keyed.emit == "close" else windows
    if step.join is not None and is_table:
        return _Changes(f"the join of tables in {place}")
    if step.operator in OWN_RECORDS or (step.join is not None and step.join.is_within):
        return None
    if step.operator in NEW_KEY and changes is not None:
        return replace(changes, moved=f"{step.operator} in {place}")
    return changes


def _message(name: str, step: StepSpec, changes: _Changes) -> str:
    what = f"stream {name!r}: {step.operator} folds the changes of {changes.of} under another key"
    if changes.is_window:
        return (
            f"{what} ({changes.moved}): a window's result goes on with each change, and every one "
            f"would be added. Let each window go on once, with emit: close"
        )
    return (
        f"{what} ({changes.moved}): nothing takes a row's old value back, so a row that changes "
        f"counts once more, and one whose new key changes counts in both groups. Fold under the "
        f"table's own key; or, where each change is to count, make the records to be counted in a "
        f"flat_map or process, or read the topic as a stream"
    )
