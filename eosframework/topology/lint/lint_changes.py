"""Lint rules for aggregates that would count the changes of a table twice.

A row replaces the previous row of its key. An aggregate under another key cannot subtract the
previous value: a row that moves from one group to another stays in the first group, and a row that
changes within its group is counted again.
"""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.topology.lowering.replacements import Changes, known_changes
from eosframework.topology.spec.loaded import Finding, LoadedApp
from eosframework.topology.spec.step_spec import StepSpec

ADDS_UP = frozenset({"count", "sum"})
"""Folds that are wrong for every repeated record. Over the results of windows, which never change
their window, other folds may be right: max is."""


def change_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about aggregates of changes; the topology has no other errors."""
    known = known_changes(app.spec).along
    for name, stream in app.spec.streams.items():
        for i, step in enumerate(stream.steps):
            changes = known[name][i]
            if changes is not None and _counts_twice(step, changes):
                place = ("streams", name, "steps", i, step.operator)
                yield app.finding(place, "moved-row", _message(name, step, changes))


def _counts_twice(step: StepSpec, changes: Changes) -> bool:
    if step.aggregates is None or changes.moved is None or changes.is_final:
        return False
    return changes.window is None or step.operator in ADDS_UP


def _message(name: str, step: StepSpec, changes: Changes) -> str:
    what = f"stream {name!r}: {step.operator} folds the changes of {changes.of} under another key"
    if changes.window is not None:
        return (
            f"{what} ({changes.moved}): a window emits a result with each change, and every one "
            f"would be added. Let each window emit once, with emit: close"
        )
    return (
        f"{what} ({changes.moved}): nothing takes a row's old value back, so a row that changes "
        f"counts once more, and one whose new key changes counts in both groups. Fold under the "
        f"table's own key; or, where each change is to count, make the records to be counted in a "
        f"flat_map or process, or read the topic as a stream"
    )
