"""Lint rules for steps that call a coroutine: their function, their arguments and their place.

A record waits for its calls before it is run, so no step before them may remember: what it
remembers would depend on records that are run later.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from eosframework.topology.lint.lint_steps import follows_repartition, piece_of
from eosframework.topology.lowering.lowering import Lowered
from eosframework.topology.lowering.parts import Part, connected_parts, in_order
from eosframework.topology.spec.keyed_spec import DeduplicateSpec, KeyedSpec, Order, order_of
from eosframework.topology.spec.loaded import Finding, LoadedApp, SpecPath
from eosframework.topology.spec.once_spec import OnDoubt
from eosframework.topology.spec.step_spec import CALLS, StepSpec
from eosframework.topology.spec.topology_spec import DeadLetter, TopologySpec

_ASYNC = ("map_async", "filter_async", "for_each_async", "map_batch_async")
"""Operators that call a coroutine, whose calls may repeat."""

_FOR_COROUTINES = {
    "filter": "filter_async",
    "map_values": "map_async",
    "peek": "for_each_async",
    "filter_batch": "filter_async",
    "map_batch": "map_batch_async",
}
"""By operator, the one that does the same with a coroutine."""

_OF_EFFECTS = ("call", "look_up")
"""Functions of call_once that may be declared with `async def`."""

_FOR_FUNCTIONS = {
    "filter_async": "filter",
    "map_async": "map_values",
    "for_each_async": "peek",
    "map_batch_async": "map_batch",
}


def resources_at(spec: TopologySpec, path: SpecPath) -> Iterable[str]:
    """Return the arguments that the function at a place gets by name."""
    if path[-1] not in _OF_EFFECTS or path[-2] not in CALLS:
        return ()
    step = spec.streams[str(path[1])].steps[int(path[3])]
    return step.calls.resources if step.calls is not None else ()


def wrong_kind(path: SpecPath, reference: str, function: Any) -> str | None:
    """Return why a function is a coroutine function where none can be, or the reverse; or None."""
    operator = str(path[-2] if path[-2] in CALLS or path[-1] == "call" else path[-1])
    if path[-2] == "resources" or (path[-2] == "call_once" and path[-1] in _OF_EFFECTS):
        return None
    if operator in _ASYNC and path[-1] == "call":
        if _is_coroutine(function):
            return None
        return (
            f"{reference!r} is not declared with `async def`, so {operator} cannot wait for it; "
            f"declare it so, or use {_FOR_FUNCTIONS[operator]}, which calls a function"
        )
    if not _is_coroutine(function) and not _is_generator(function):
        return None
    found = _FOR_COROUTINES.get(operator)
    use = f"use {found}" if found else f"call it in {', '.join(_ASYNC[:-1])} or {_ASYNC[-1]} before"
    return (
        f"{reference!r} is declared with `async def`: a call returns a coroutine, which is "
        f"not its result and counts as true; expected a function that returns its result. For a "
        f"coroutine {use}"
    )


def _is_coroutine(function: Any) -> bool:
    called = getattr(function.__class__, "__call__", None)  # noqa: B004 - it is callable
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _is_generator(function: Any) -> bool:
    called = getattr(function.__class__, "__call__", None)  # noqa: B004 - it is callable
    return inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(called)


def call_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about the places of steps that call a coroutine."""
    spec = app.spec
    ends: dict[str, str | None] = {
        name: f"table {name!r}" if source.is_table or source.global_ else None
        for name, source in spec.sources.items()
    }
    for name in in_order(spec)[0]:
        stream = spec.streams[name]
        before = next(filter(None, (ends.get(parent) for parent in stream.from_)), None)
        for i, step in enumerate(stream.steps):
            if step.calls is not None and before is not None:
                yield app.finding(
                    ("streams", name, "steps", i, step.operator),
                    "call-place",
                    f"{step.operator}({step.function}) cannot stand here: it comes after {before}, "
                    f"and calls run before a record meets what its task remembers. Move it before "
                    f"that, or put a group_by or a topic between the two",
                )
            before = _remembering(name, i, step, before)
        for member in (name, *stream.branch_names):
            ends[member] = before


def _remembering(name: str, index: int, step: StepSpec, before: str | None) -> str | None:
    """Return the step after which a task remembers; None: it does not."""
    if step.group_by is not None:
        return None
    if step.keyed or step.join or step.handler or step.batch:
        return f"{step.operator} in {name!r}, steps[{index}]"
    return before


def order_call_findings(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return the findings about calls whose records a later step takes in the order of time."""
    parts = connected_parts(lowered.app.spec)
    for name, stream in app.spec.streams.items():
        for i, step in enumerate(stream.steps):
            if step.calls is None or not follows_repartition(lowered, name, i):
                continue
            timed = _timed_in_part(lowered, parts, name, i)
            if timed is not None:
                yield app.finding(
                    ("streams", name, "steps", i, step.operator),
                    "call-place",
                    f"{step.operator}({step.function}) stands between a repartition topic and "
                    f"{timed.operator}, which takes records in the order of time and holds them "
                    f"without the results of calls. Move the call before the group_by, or state "
                    f"order: arrival at {timed.operator}",
                )


def _timed_in_part(
    lowered: Lowered, parts: Iterable[Part], name: str, index: int
) -> StepSpec | None:
    spec = lowered.app.spec
    piece = piece_of(lowered, name, index)
    part = next(part for part in parts if piece in part.streams)
    steps = (step for one in part.streams for step in spec.streams[one].steps)
    return next((step for step in steps if _goes_by_time(spec, step)), None)


def _goes_by_time(spec: TopologySpec, step: StepSpec) -> bool:
    declared = step.keyed
    if isinstance(declared, KeyedSpec):
        window = None if declared.window is None else declared.window.window()
        return order_of(declared, window) is Order.TIME
    if isinstance(declared, DeduplicateSpec):
        return declared.order != "arrival"
    if step.handler is not None:
        return step.handler.records_order is Order.TIME
    if step.join is not None and not step.join.is_within:
        source = spec.sources.get(step.join.with_)
        has_history = source is not None and source.history is not None
        return (step.join.order or ("time" if has_history else "arrival")) == "time"
    return False


def effect_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about the policies and names of steps whose calls take effect once."""
    for name, stream in app.spec.streams.items():
        labels = dict[str, int]()
        for i, step in enumerate(stream.steps):
            if (once := step.call_once) is None:
                continue
            path: SpecPath = ("streams", name, "steps", i, "call_once")
            if (first := labels.setdefault(once.label, i)) != i:
                yield app.finding(
                    path,
                    "effect-name",
                    f"call_once({step.function}) has the name {once.label!r} in keys of effects, "
                    f"as steps[{first}] has; give one of them another one with name:",
                )
            if once.on_doubt is OnDoubt.DEAD_LETTER and (found := _unlisted(stream.on_error)):
                yield app.finding(
                    path,
                    "effect-doubt",
                    f"call_once({step.function}) in {name!r} has on_doubt: dead_letter, {found}",
                )


def _unlisted(policy: object) -> str | None:
    """Return why a stream cannot list doubts as dead letters; None: it can."""
    if not isinstance(policy, DeadLetter):
        return (
            "and its stream has no topic for dead letters: a doubt would be lost, or end each "
            "worker. State on_error: {dead_letter: TOPIC} at the stream"
        )
    if policy.retry or policy.replay:
        option = "retry" if policy.retry else "replay"
        return (
            f"and on_error of its stream has {option}, which finds the doubt again each time. "
            f"Leave {option} out: whether the effect took place is for a person to find out"
        )
    return None
