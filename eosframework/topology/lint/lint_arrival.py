"""Steps whose results depend on the arrival of records, for `lint --strict`.

Equal input gives equal results where results follow from the times of records alone (ADR 20). The
steps named here are the others: after a repartition topic their results depend on the order in
which upstream tasks write, or anywhere on the clock, on transactions or on other processes.
docs/howto/state.md has the same list as a table.
"""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.topology.lint.lint_order import follows_repartition
from eosframework.topology.lowering.lowering import Lowered
from eosframework.topology.spec.join_spec import JoinSpec
from eosframework.topology.spec.keyed_spec import DeduplicateSpec, KeyedSpec, Order, order_of
from eosframework.topology.spec.loaded import Finding, LoadedApp, Severity
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.tabular import is_global, tables_along
from eosframework.topology.spec.topology_spec import TopologySpec

FOLDS_BY_FUNCTION = ("reduce", "aggregate")
"""Operators whose functions may give other results for another order of records."""


def arrival_findings(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return the steps whose results depend on arrival; the topology has no errors."""
    for name, stream in app.spec.streams.items():
        rows = tables_along(app.spec, stream)
        for i, step in enumerate(stream.steps):
            found = [*_anywhere(app.spec, step)]
            if follows_repartition(lowered, name, i):
                found += _after_repartition(app.spec, step, is_row=rows[i])
            for reason in found:
                yield app.finding(
                    ("streams", name, "steps", i, step.operator),
                    "arrival",
                    f"results of {step.operator} in {name!r} depend on the arrival of records: "
                    f"{reason}",
                    Severity.WARNING,
                )


def _anywhere(spec: TopologySpec, step: StepSpec) -> Iterator[str]:
    """Yield the reasons that need no repartition topic."""
    declared = step.keyed
    if isinstance(declared, KeyedSpec):
        if declared.emit == "commit":
            yield (
                "emit: commit sends the last value of each transaction, and transactions vary in "
                "size. emit: close sends each window once"
            )
        if declared.window is not None and declared.window.close_when_idle is not None:
            yield "close_when_idle closes windows by the wall clock"
    if step.join is not None and is_global(spec, step.join.with_):
        yield (
            f"each process reads global table {step.join.with_!r} by itself. A table with history "
            f"gives the row of the record's time"
        )


def _after_repartition(spec: TopologySpec, step: StepSpec, *, is_row: bool) -> Iterator[str]:
    """Yield the reasons that hold after a repartition topic."""
    declared = step.keyed
    if isinstance(declared, KeyedSpec):
        yield from _of_fold(step.operator, declared)
    elif isinstance(declared, DeduplicateSpec) and declared.order == "arrival":
        yield "order: arrival passes on the first record that arrives. Leave order: out"
    elif step.handler is not None:
        if step.handler.records_order is Order.ARRIVAL:
            yield "a function with stores gets records as they arrive. State order: time"
    elif step.join is not None and not step.join.is_within:
        yield from _of_join(spec, step.join, is_row=is_row)


def _of_fold(operator: str, declared: KeyedSpec) -> Iterator[str]:
    window = None if declared.window is None else declared.window.window()
    if order_of(declared, window) is Order.TIME or declared.emit == "commit":
        return
    if declared.order == "arrival":
        yield "order: arrival folds records as they arrive. Leave order: out, or state time"
    elif declared.emit == "each":
        yield "emit: each sends an update for each record as it arrives. State order: time"
    elif operator in FOLDS_BY_FUNCTION:
        yield (
            "its function gets records as they arrive. State order: time, unless it gives the same "
            "for any order"
        )


def _of_join(spec: TopologySpec, join: JoinSpec, *, is_row: bool) -> Iterator[str]:
    if is_global(spec, join.with_) or join.order == "time":
        return
    if is_row:
        yield "a join of tables sends a result for each change as it arrives"
        return
    source = spec.sources.get(join.with_)
    if source is None or source.history is None:
        yield (
            f"it finds the row of {join.with_!r} that has arrived. State history: at the table for "
            f"the row of the record's time"
        )
    elif join.order == "arrival":
        yield "order: arrival finds the rows that have arrived. Leave order: out"
