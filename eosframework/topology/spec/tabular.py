"""The tables of a spec: rows by key that a join can look up.

A table is a source that is declared as one, the store of an aggregate without windows, a join of
two tables, or one of these followed by filters and maps of values only.
"""

from __future__ import annotations

from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.topology_spec import StreamSpec, TopologySpec

VIEW_STEPS = frozenset({"filter", "map_values"})
"""Steps that turn a table into another table."""


def is_table(spec: TopologySpec, name: str) -> bool:
    """Return True if a source or stream is a table; a global table does not count."""
    return _is_table(spec, name, frozenset())


def tables_along(spec: TopologySpec, stream: StreamSpec) -> list[bool]:
    """Return for each position in a stream, before each step and at its end, if it is a table."""
    return _along(spec, stream, frozenset())


def is_global(spec: TopologySpec, name: str) -> bool:
    """Return True if `name` is a global table."""
    return name in spec.sources and spec.sources[name].global_


def _is_table(spec: TopologySpec, name: str, seen: frozenset[str]) -> bool:
    if name in spec.sources:
        return spec.sources[name].is_table and not spec.sources[name].global_
    if name not in spec.streams or name in seen:
        return False
    return _along(spec, spec.streams[name], seen | {name})[-1]


def _along(spec: TopologySpec, stream: StreamSpec, seen: frozenset[str]) -> list[bool]:
    state = len(stream.from_) == 1 and _is_table(spec, stream.from_[0], seen)
    states = [state]
    for step in stream.steps:
        state = _after(spec, step, state, seen)
        states.append(state)
    return states


def _after(spec: TopologySpec, step: StepSpec, before: bool, seen: frozenset[str]) -> bool:
    if step.operator in VIEW_STEPS:
        return before
    if step.join is not None:
        return before and not step.join.is_within and _is_table(spec, step.join.with_, seen)
    return step.aggregates is not None and step.aggregates.window is None
