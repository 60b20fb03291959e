"""Lint rules for records that replace earlier ones: changes of tables, and results of windows.

An aggregate of such records would count twice: a row replaces the previous row of its key, so a row
that moves to another group would stay in the first one as well, and a row that changes within its
group would be counted again. `group_by` of a table sends the previous row along, and the aggregate
after it takes it back. What cannot take a row back is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eosframework.topology.lint.lint_joins import expiring_tables, late_tables, origins_of
from eosframework.topology.lowering.parts import (
    Changes,
    known_changes,
    policies_in_force,
    tables_along,
)
from eosframework.topology.spec.keyed_spec import KeyedSpec
from eosframework.topology.spec.loaded import Finding, LoadedApp, Severity, SpecPath
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.topology_spec import StreamSpec

_ADDS_UP = frozenset({"count", "sum"})
"""Folds that are wrong for every repeated record. Over the results of windows, which never change
their window, other folds may be right: max is."""

_TAKES_BACK = ("count", "sum", "reduce", "aggregate")
"""Folds that can take a row back."""


def change_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about aggregates of changes; the topology has no other errors."""
    known = known_changes(app.spec)
    for name, stream in app.spec.streams.items():
        rows = tables_along(app.spec, stream)
        for i, step in enumerate(stream.steps):
            place: SpecPath = ("streams", name, "steps", i, step.operator)
            changes = known.along[name][i]
            is_grouped = changes is not None and changes.is_grouped
            if changes is not None and is_grouped:
                for message in _of_group(step, changes):
                    yield app.finding(place, "grouped-table", f"stream {name!r}: {message}")
            elif changes is not None and step.refuses_changes and not changes.is_final:
                yield app.finding(place, "row-list", _not_of_changes(name, step, changes))
            elif changes is not None and _counts_twice(step, changes):
                yield app.finding(place, "moved-row", _message(name, step, changes))
            if step.group_by is not None and rows[i]:
                for message in _of_table(app, name, i):
                    yield app.finding(place, "grouped-table", f"stream {name!r}: {message}")
            subtract = getattr(step.aggregates, "subtract", None)
            if subtract is not None and not is_grouped:
                message = (
                    f"stream {name!r}: {subtract!r} would take nothing back, because "
                    f"{step.operator} does not follow group_by of a table; leave subtract out"
                )
                yield app.finding((*place, "subtract"), "grouped-table", message)
        end = known.along[name][-1]
        if end is not None and end.is_grouped:
            yield from _ends(app, name, stream, end)
    yield from _joined(app, known.ends)
    yield from _policies(app, known.along)


def _of_group(step: StepSpec, changes: Changes) -> Iterator[str]:
    """Yield the reasons why a step cannot follow a grouped table."""
    operator, declared = step.operator, step.aggregates
    if changes.is_shaped:
        yield f"{operator} merges the groups of {changes.of} with other records; group each alone"
    elif operator in ("min", "max"):
        yield (
            f"{operator} of {changes.of} cannot take a row back: when the {operator} leaves its "
            f"group, the next one is not known. Keep what the result needs, and write aggregate: "
            f"{{initial: module:function, add: module:function, subtract: module:function}}"
        )
    elif declared is None or operator not in _TAKES_BACK:
        yield (
            f"{operator} follows group_by of {changes.of}, whose changes come with the row before; "
            f"expected one of {', '.join(_TAKES_BACK)}. Write select_key in place of group_by to "
            f"get the changes as a stream"
        )
    else:
        yield from _of_fold(operator, declared, changes)


def _of_fold(operator: str, declared: KeyedSpec, changes: Changes) -> Iterator[str]:
    if declared.window is not None:
        why = "belong to no time" if declared.window.records is None else "have no order"
        yield f"{operator} has a window, and the rows of {changes.of} {why}; leave window: out"
    if declared.ttl is not None:
        yield (
            f"{operator} has a ttl, after which it would forget rows that {changes.of} still has; "
            f"leave ttl: out"
        )
    if hasattr(declared, "subtract") and getattr(declared, "subtract", None) is None:
        yield (
            f"{operator} of {changes.of} has no function that takes a row back when it changes; "
            f"write subtract: module:function, which takes the aggregate and the row before"
        )


def _of_table(app: LoadedApp, name: str, index: int) -> Iterator[str]:
    """Yield the reasons why a table cannot be grouped."""
    origins = origins_of(app.spec, name, index)
    yield from late_tables(app.spec, origins, "groups a table")
    yield from expiring_tables(app.spec, origins, "groups a table")


def _ends(app: LoadedApp, name: str, stream: StreamSpec, end: Changes) -> Iterator[Finding]:
    """Find sinks and branches of a grouped table."""
    used = [("to", i) for i, _ in enumerate(stream.to)] or [("branch",)] * bool(stream.branch)
    for place in used:
        yield app.finding(
            ("streams", name, *place),
            "grouped-table",
            f"stream {name!r} ends with the groups of {end.of}, whose changes come with the row "
            f"before; expected one of {', '.join(_TAKES_BACK)}. Write select_key in place of "
            f"group_by to get the changes as a stream",
        )


def _joined(app: LoadedApp, ends: Mapping[str, Changes | None]) -> Iterator[Finding]:
    for name, stream in app.spec.streams.items():
        for i, other in stream.joined:
            changes = ends.get(other)
            if changes is not None and changes.is_grouped:
                yield app.finding(
                    ("streams", name, "steps", i, "join", "with"),
                    "grouped-table",
                    f"stream {name!r} is joined with {other!r}, which has the groups of "
                    f"{changes.of}; join what an aggregate of it gives",
                )


def _policies(app: LoadedApp, along: Mapping[str, list[Changes | None]]) -> Iterator[Finding]:
    """Find aggregates of groups that leave out rows which fail."""
    policies = policies_in_force(app.spec)
    for name, stream in app.spec.streams.items():
        if policies[name] in (None, "fail"):
            continue
        for i, step in enumerate(stream.steps):
            changes = along[name][i]
            if changes is not None and changes.is_grouped and step.aggregates is not None:
                yield app.finding(
                    ("streams", name, "steps", i, step.operator),
                    "grouped-table",
                    f"stream {name!r} leaves out a row for which {step.operator} fails, and takes "
                    f"it back all the same once it changes. Drop such rows in a filter before "
                    f"group_by, or state on_error: fail",
                    Severity.WARNING,
                )


def _not_of_changes(name: str, step: StepSpec, changes: Changes) -> str:
    return (
        f"stream {name!r}: {step.operator} cannot take the changes of {changes.of}: a row or "
        f"window that changes would count again, and one that is deleted would stay. "
        + (
            "Let each window emit once, with emit: close"
            if changes.window is not None
            else "Read the topic as a stream, if each change is to count"
        )
    )


def _counts_twice(step: StepSpec, changes: Changes) -> bool:
    if step.aggregates is None or changes.moved is None or changes.is_final:
        return False
    return changes.window is None or step.operator in _ADDS_UP


def _message(name: str, step: StepSpec, changes: Changes) -> str:
    what = f"stream {name!r}: {step.operator} folds the changes of {changes.of} under another key"
    if changes.window is not None:
        return (
            f"{what} ({changes.moved}): a window emits a result with each change, and every one "
            f"would be added. Let each window emit once, with emit: close"
        )
    return (
        f"{what} ({changes.moved}): nothing takes a row's old value back, so a row that changes "
        f"counts once more, and one whose new key changes counts in both groups. Write group_by "
        f"directly after the table, its filters and map_values; or, where each change is to count, "
        f"make the records to be counted in a flat_map or process, or read the topic as a stream"
    )
