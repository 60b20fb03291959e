"""Lint rules for single steps.

Steps whose results depend on the arrival of records, for `lint --strict`: equal input gives equal
results where results follow from the times of records alone (ADR 20). The steps named here are the
others: after a repartition topic their results depend on the order in which upstream tasks write,
or anywhere on the clock, on transactions or on other processes. docs/howto/state.md has the same
list as a table.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from importlib.util import find_spec
from types import FunctionType
from typing import Any

from eosframework.errors import TopologyError
from eosframework.serialization.serdes import BYTES, FLOAT, INTEGER, JSON, STRING
from eosframework.topology.lowering.lowering import HEAD, Lowered
from eosframework.topology.lowering.parts import (
    Part,
    connected_parts,
    in_order,
    is_global,
    tables_along,
)
from eosframework.topology.spec.batch_spec import Columns, columns_of
from eosframework.topology.spec.join_spec import JoinSpec
from eosframework.topology.spec.keyed_spec import DeduplicateSpec, KeyedSpec, Order, order_of
from eosframework.topology.spec.loaded import Finding, LoadedApp, Severity, SpecPath
from eosframework.topology.spec.step_spec import CALLS, ProcessSpec, StepSpec
from eosframework.topology.spec.topology_spec import DeadLetter, StreamSpec, TableSpec, TopologySpec


class _End(Enum):
    """The form of the records at the end of a source or a stream, for a batch operator."""

    VALUES = "values"
    """JSON values as they are in a topic."""
    COLUMNS = "columns"
    """The result of another batch operator."""


_PLACES = (
    "a batch operator directly follows a source with value: json, or other batch operators; use "
    "map_values or filter here, or move it to the front"
)


def declared_columns(app: LoadedApp, step: StepSpec) -> Columns | None:
    """Return the columns that a step declares; None if it declares none.

    Raises:
        TopologyError: its schema cannot be found or is not a schema.
    """
    if step.batch is None or step.batch.schema_ is None:
        return None
    declared = step.batch.schema_
    return columns_of(app.find(declared) if isinstance(declared, str) else declared)


def batch_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about batch operators."""
    ends: dict[str, _End] = {
        name: _End.VALUES
        for name, source in app.spec.sources.items()
        if source.value == JSON.name and not source.is_table and not source.global_
    }
    for name in in_order(app.spec)[0]:
        stream = app.spec.streams[name]
        end = _begin(stream, ends)
        for i, step in enumerate(stream.steps):
            if step.batch is not None and not app.unread.intersection(stream.from_):
                yield from _of_step(app, ("streams", name, "steps", i), step, end)
            end = None if step.batch is None else _End.COLUMNS
        if end is not None:
            ends[name] = end
        if stream.steps and stream.steps[-1].map_batch is not None:
            yield from _sinks(app, name, stream)


def _begin(stream: StreamSpec, ends: Mapping[str, _End]) -> _End | None:
    """Return the form of the records that a stream reads; None if its parents differ."""
    found = {ends.get(parent) for parent in stream.from_}
    return found.pop() if len(found) == 1 else None


def _of_step(
    app: LoadedApp, path: SpecPath, step: StepSpec, before: _End | None
) -> Iterator[Finding]:
    assert step.batch is not None, "only batch operators come here"
    place = (*path, step.operator)
    schema_place = (*path, step.operator, "schema")
    what = f"{step.operator}({step.function})"
    if find_spec("pyarrow") is None:
        yield app.finding(
            place, "batch", f"{what} needs pyarrow; install it: pip install 'eosframework[arrow]'"
        )
    if before is None:
        yield app.finding(place, "batch", f"{what} cannot stand here: {_PLACES}")
    elif before is _End.VALUES and step.batch.schema_ is None:
        yield app.finding(
            place,
            "batch",
            f"{what} reads JSON values and declares no columns; state its schema, for example "
            f"schema: {{price: float64, origin: string}}",
        )
    elif before is _End.COLUMNS and step.batch.schema_ is not None:
        yield app.finding(
            schema_place,
            "batch",
            f"{what} takes the columns that the batch operator before it gives; leave out its "
            f"schema",
        )
    try:
        declared_columns(app, step)
    except TopologyError as error:
        yield app.finding(schema_place, "batch", f"{what}: {error}")


def _sinks(app: LoadedApp, name: str, stream: StreamSpec) -> Iterator[Finding]:
    """Find sinks that cannot take the JSON objects that a batch operator returns."""
    for i, sink in enumerate(stream.to):
        is_row = isinstance(sink, TableSpec) and sink.row is None
        serde = sink.value or (sink.model if isinstance(sink, TableSpec) and is_row else None)
        if serde is not None and not _takes_maps(app, serde):
            yield app.finding(
                ("streams", name, "to", i, "value"),
                "batch",
                f"stream {name!r} ends with map_batch, which returns JSON objects, and is "
                f"written with {serde!r}, which takes none; state value: json",
            )


def _takes_maps(app: LoadedApp, name: str) -> bool:
    try:
        serde = app.serde(name)
    except TopologyError:
        return True  # another rule reports the unknown serde
    return serde.model is None and serde not in (BYTES, STRING, INTEGER, FLOAT)


_FOLDS_BY_FUNCTION = ("reduce", "aggregate", "cogroup", "top", "bottom", "distinct")
"""Operators that may give other results for another order of records."""

_FOLDING = ("add", "subtract")
_VALUE = ("the value",)
_RECORD = ("the whole record",)
_EFFECT = ("the value", "the effect")
_FOLDED = ("the aggregate", "a value")
_UPGRADE = ("the bytes of an older value", "its version")

_BY_OPERATOR: dict[str, tuple[str, ...]] = {
    "select_key": _RECORD,
    "map": _RECORD,
    "flat_map": _RECORD,
    "topic_from": _RECORD,
    "row": _RECORD,
}
"""Arguments of functions that are named directly; of the others: the value."""

_BY_FIELD: dict[tuple[str, str], tuple[str, ...]] = {
    ("group_by", "by"): _RECORD,
    ("process", "call"): ("the whole record", "a context"),
    ("process", "on_timer"): ("the key", "the time", "a context"),
    ("process", "on_wall_timer"): ("the key", "the time", "a context"),
    ("process", "on_every"): ("the time", "a context"),
    ("map_batch", "call"): ("a batch",),
    ("filter_batch", "call"): ("a batch",),
    **{(operator, "call"): _VALUE for operator in CALLS},
    ("call_once", "call"): _EFFECT,
    ("call_once", "look_up"): _EFFECT,
    ("map_batch_async", "call"): ("a list of values",),
    **{(operator, name): _FOLDED for operator in ("reduce", "aggregate") for name in _FOLDING},
    ("cogroup", "add"): ("the aggregate", "a value"),
    ("cogroup", "initial"): (),
    ("cogroup", "merge"): ("the earlier aggregate", "the later one"),
    ("aggregate", "initial"): (),
    ("aggregate", "merge"): ("the earlier aggregate", "the later one"),
    ("join", "by"): ("the value of this side", "the value of the other side"),
    ("join", "key"): _RECORD,
}
"""Arguments of functions in a field of an operator, by operator and field."""


def _arguments_at(path: SpecPath) -> tuple[str, ...]:
    """Return the arguments with which the function at a place of the topology is called."""
    if "cogroup" in path and "add" in path:
        path = ("cogroup", "add")
    operator, field = str(path[-2]), str(path[-1])
    if operator == "resources":
        return ()
    if field == "upgrade":
        return _UPGRADE
    return _BY_FIELD.get((operator, field), _BY_OPERATOR.get(field, _VALUE))


def wrong_arguments(
    path: SpecPath, reference: str, function: Callable[..., Any], named: Iterable[str] = ()
) -> str | None:
    """Return why a function cannot be called at its place; None: it can, or cannot be inspected.

    Args:
        path: the place.
        reference: the function's name.
        function: the function.
        named: the arguments that it gets by name.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-in functions may have none
        return None
    given = _arguments_at(path)
    try:
        signature.bind(*given, **dict.fromkeys(named))
    except TypeError as error:
        given = (*given, *(f"{name}=…" for name in named))
        listed = f"{len(given)} arguments ({', '.join(given)})" if given else "no argument"
        listed = listed.replace("1 arguments", "1 argument")
        return f"{reference!r} is called with {listed}, which {signature} does not take: {error}"
    return None


def retry_findings(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return the findings about `retry` and `replay`; the topology has no other errors."""
    parts = connected_parts(lowered.app.spec)
    stateful = [part for part in parts if _has_state(lowered.app.spec, part)]
    remember = {name for part in stateful for name in _names(part)}
    for section, declared in (("sources", app.spec.sources), ("streams", app.spec.streams)):
        for name, part in declared.items():
            policy = part.on_error
            if not isinstance(policy, DeadLetter) or not (policy.retry or policy.replay):
                continue
            pieces = {n for p in parts for n in _names(p) if n == name or n.startswith(name + HEAD)}
            if pieces <= remember:
                setting = "retry" if policy.retry else "replay"
                path: SpecPath = (section, name, "on_error", setting)
                yield app.finding(
                    path,
                    "retry",
                    f"{setting} in {name!r} cannot be used: its task remembers (aggregates, joins, "
                    f"tables, handlers), and what a record meets there depends on the records "
                    f"before it. Leave {setting} out, or put the steps that may fail into a stream "
                    f"of their own, before a group_by or a topic",
                )


def _names(part: Part) -> tuple[str, ...]:
    return (*part.sources, *part.streams)


def _has_state(spec: TopologySpec, part: Part) -> bool:
    steps = (step for name in part.streams for step in spec.streams[name].steps)
    return any(spec.sources[name].is_table for name in part.sources) or any(
        step.keyed is not None or step.join is not None or step.handler is not None
        for step in steps
    )


_NOT_A_VALUE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def returns_nothing(function: Any) -> bool:
    """Return whether a function declared with `def` returns None whatever it is given.

    One that is annotated with None says so, and a lambda shows its result.
    """
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        return False
    if "return" in function.__annotations__ or function.__code__.co_flags & _NOT_A_VALUE:
        return False
    steps = [one for one in dis.get_instructions(function) if one.opname not in ("CACHE", "NOP")]
    ends = [n for n, step in enumerate(steps) if step.opname in ("RETURN_VALUE", "RETURN_CONST")]
    return bool(ends) and all(_returns_none(steps, end) for end in ends)


def _returns_none(steps: list[dis.Instruction], end: int) -> bool:
    step = steps[end] if steps[end].opname == "RETURN_CONST" else steps[end - 1]
    return step.opname in ("RETURN_CONST", "LOAD_CONST") and step.argval is None


def order_findings(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return the findings about `order`; the topology has no errors."""
    for name, stream in app.spec.streams.items():
        for i, step in enumerate(stream.steps):
            if _order_of(step) is None or follows_repartition(lowered, name, i):
                continue
            yield app.finding(
                ("streams", name, "steps", i, step.operator, "order"),
                "order",
                f"order in {name!r} has no effect: no repartition topic comes before it, so a task "
                f"has one upstream and gets its records in the order of their topic. Leave it out",
                Severity.WARNING,
            )


def _order_of(step: StepSpec) -> str | None:
    declared = step.keyed or step.join or step.handler
    has_order = isinstance(declared, KeyedSpec | DeduplicateSpec | JoinSpec | ProcessSpec)
    return declared.order if has_order else None


def piece_of(lowered: Lowered, name: str, index: int) -> str:
    """Return the piece of a stream that has a step."""
    spec = lowered.app.spec
    # The pieces of a stream have its steps one after the other; a group_by is a select_key there.
    pieces = [p for p in spec.streams if p.split(HEAD)[0] == name]
    return [piece for piece in pieces for _ in spec.streams[piece].steps][index]


def follows_repartition(lowered: Lowered, name: str, index: int) -> bool:
    """Return whether the piece of a stream that has a step is read from a repartition topic."""
    spec = lowered.app.spec
    piece = piece_of(lowered, name, index)
    part = next(part for part in connected_parts(spec) if piece in part.streams)
    topics = {spec.sources[source].topic for source in part.sources}
    return not lowered.repartitions.keys().isdisjoint(topics)


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
    if step.handler is not None:
        for role in ("on_every", "on_wall_timer"):
            if (role,) in step.handler.functions:
                yield f"{role} is called by the wall clock, and never in a backfill"
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
    elif window is not None and not window.is_timed:
        yield "windows of records take records as they arrive. State order: time"
    elif declared.emit == "each":
        yield "emit: each sends an update for each record as it arrives. State order: time"
    elif operator in _FOLDS_BY_FUNCTION:
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
