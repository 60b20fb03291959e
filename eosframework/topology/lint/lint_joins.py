"""Lint rules for tables and joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import get_args, get_origin, get_type_hints

from pydantic import BaseModel

from eosframework.errors import TopologyError, raised_by_functions
from eosframework.serialization.references import closest
from eosframework.topology.lowering.lowering import Lowered, reads_source
from eosframework.topology.lowering.parts import (
    branch_parents,
    in_order,
    is_global,
    is_table,
    tables_along,
)
from eosframework.topology.spec.join_spec import JoinSpec
from eosframework.topology.spec.loaded import Finding, LoadedApp, Severity, SpecPath
from eosframework.topology.spec.topology_spec import StreamSpec, TableSpec, TopologySpec


def table_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about tables."""
    for name, stream in app.spec.streams.items():
        for i, table in stream.tables:
            yield from _model_findings(app, name, i, table)
            yield from _maps_as_models(app, name, i, table)
        yield from _different_serdes(app, name, stream)
        yield from _tables_twice(app, name, stream)


def _model_findings(app: LoadedApp, name: str, i: int, table: TableSpec) -> Iterator[Finding]:
    if table.model is None:
        return
    place = ("streams", name, "to", i, "model")
    try:
        model = app.find_model(table.model)
    except TopologyError as error:
        yield app.finding(place, "import", str(error))
        return
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        yield app.finding(
            place,
            "model",
            f"{table.model!r} is no pydantic model; expected one, whose fields are the columns of "
            f"{table.table}",
        )


def _maps_as_models(app: LoadedApp, name: str, i: int, table: TableSpec) -> Iterator[Finding]:
    """Find a step annotated to return maps, whose rows would be encoded as a model."""
    stream = app.spec.streams[name]
    stated = any(other.value for _, other in stream.tables)
    if table.model is None or table.row is not None or stated or reads_source(app.spec, stream):
        return
    made = [step for step in stream.steps if step.operator in ("map_values", "flat_map_values")]
    if not made or made[-1] is not stream.steps[-1]:
        return
    try:
        hints = get_type_hints(app.find(made[-1].function))
    except raised_by_functions():  # hints are optional, and _functions reports failed imports
        return
    returned = hints.get("return")
    if made[-1].operator == "flat_map_values":
        returned = next(iter(get_args(returned)), None)
    kind = get_origin(returned) or returned
    if isinstance(kind, type) and issubclass(kind, Mapping):
        yield app.finding(
            ("streams", name, "to", i, "model"),
            "table-serde",
            f"{made[-1].function!r} says that it returns maps, and rows of stream {name!r} travel "
            f"in the form of {table.model!r}, which takes none; state value: json",
            Severity.WARNING,
        )


def _different_serdes(app: LoadedApp, name: str, stream: StreamSpec) -> Iterator[Finding]:
    """Find tables that need different serdes for the rows of one topic."""
    reads: dict[str, Callable[[TableSpec], str | None]] = {
        "key": lambda table: table.key,
        "value": lambda table: table.value,
    }
    for part, read in reads.items():
        wanted = sorted({serde for _, table in stream.tables if (serde := read(table))})
        if len(wanted) > 1:
            yield app.finding(
                ("streams", name, "to", stream.tables[-1][0], part),
                "table-serde",
                f"the tables of stream {name!r} want different {part} serdes "
                f"({', '.join(wanted)}), and their rows go through one topic; state one",
            )
        elif wanted and reads_source(app.spec, stream):
            yield app.finding(
                ("streams", name, "to", stream.tables[0][0], part),
                "table-serde",
                f"stream {name!r} goes to a table as it is in its source, so its {part} is what "
                f"the source says; state {part}: there",
            )


def _tables_twice(app: LoadedApp, name: str, stream: StreamSpec) -> Iterator[Finding]:
    seen: set[tuple[str, str | None]] = set()
    for i, table in stream.tables:
        if (table.table, table.row) in seen:
            yield app.finding(
                ("streams", name, "to", i),
                "duplicate-sink",
                f"stream {name!r} goes to table {table.table!r} twice with the same rows; keep one",
            )
        seen.add((table.table, table.row))


def join_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about tables and joins."""
    yield from _sources(app)
    yield from _from_global_tables(app)
    known = {*app.spec.sources, *app.spec.streams, *branch_parents(app.spec)}
    in_cycle = set(in_order(app.spec)[1])
    for name, stream in app.spec.streams.items():
        along = tables_along(app.spec, stream)
        for i, step in enumerate(stream.steps):
            if step.join is None:
                continue
            path: SpecPath = ("streams", name, "steps", i, "join")
            place = (*path, "with")
            other = step.join.with_
            if other in app.unread or name in in_cycle:
                continue
            if other not in known:
                yield app.finding(
                    place,
                    "unknown-stream",
                    f"stream {name!r} is joined with {other!r}, which is no source, stream or "
                    f"branch; declared are {', '.join(sorted(known - {name}))}"
                    f"{closest(other, known)}",
                )
                continue
            for message in _fit(app.spec, name, i, step.join, is_row=along[i]):
                yield app.finding(path, "join", f"stream {name!r} {message}")
            yield from _serdes(app, step.join, path)


def _sources(app: LoadedApp) -> Iterator[Finding]:
    for name, source in app.spec.sources.items():
        if source.global_ and source.is_table:
            setting = "history" if source.history is not None else "table"
            yield app.finding(
                ("sources", name, setting),
                "global-table",
                f"source {name!r} is a global table, of which each process has the rows as they "
                f"are now; leave out {setting}:, or leave out global:",
            )
        elif source.global_ and (source.timestamp is not None or source.on_error is not None):
            setting = "on_error" if source.timestamp is None else "timestamp"
            yield app.finding(
                ("sources", name, setting),
                "global-table",
                f"source {name!r} is a global table; {setting}: has no meaning for it, since its "
                f"rows have no part in the order of records and are decoded when they are looked "
                f"up. Leave it out",
            )


def _from_global_tables(app: LoadedApp) -> Iterator[Finding]:
    for name, stream in app.spec.streams.items():
        for i, parent in enumerate(stream.from_):
            if is_global(app.spec, parent):
                yield app.finding(
                    ("streams", name, "from", i),
                    "global-table",
                    f"stream {name!r} reads {parent!r}, which is a global table: every process "
                    f"has all of it, so each record would be processed by each of them. Join with "
                    f"it, or declare the topic once more as a source of its own",
                )


def _fit(
    spec: TopologySpec, stream: str, at: int, join: JoinSpec, *, is_row: bool
) -> Iterator[str]:
    """Yield the contradictions between both sides of a join."""
    other = join.with_
    if join.is_within:
        if is_global(spec, other):
            yield f"is joined within a time with global table {other!r}; leave out within:"
        elif is_table(spec, other) and other in spec.sources:
            yield (
                f"is joined within a time with table {other!r}, whose rows stay current until they "
                f"change; leave out within:, and state history: at the table to find the row of "
                f"the record's time"
            )
        return
    if join.store is not None and not (is_row and is_table(spec, other)):
        yield f"states store: for {other!r}, which it only looks up; leave store: out"
    if is_global(spec, other):
        if join.kind == "outer":
            yield _no_outer(other)
        if join.order is not None:
            yield (
                f"states order: for global table {other!r}, which each process reads by itself; "
                f"leave order: out"
            )
        return
    if not is_table(spec, other):
        yield (
            f"is joined with {other!r}, which is a stream: no row of it is current. State within: "
            f"10m, or make it a table (table: true at its source, or an aggregate)"
        )
        return
    if join.key is not None and not is_row:
        yield (
            f"looks for rows of table {other!r} by a key of its own, which another task may have; "
            f"give the records that key with group_by, or make the table global: true"
        )
    if not is_row:
        if join.kind == "outer":
            yield _no_outer(other)
        if join.order == "time" and not origins_of(spec, other) <= spec.sources.keys():
            yield (
                f"states order: time for {other!r}, whose rows are aggregates; state order: time "
                f"at the aggregate, and leave it out here"
            )
        return
    if join.order is not None:
        yield (
            "states order: for a join of tables, whose rows follow from the last row of each side; "
            "leave order: out"
        )
    own, others = origins_of(spec, stream, at), origins_of(spec, other)
    if join.key is not None and join.kind == "outer":
        yield (
            f"is outer joined with table {other!r} by a key of its own: a row of {other!r} without "
            f"a match has no key under which it could be sent. Use left or inner"
        )
    if own & others and join.key is None:
        yield f"is joined with {other!r}, which has its rows from the same table; use map_values"
    yield from late_tables(spec, own | others, "joins tables")
    yield from expiring_tables(spec, own | others, "joins tables")


def _no_outer(other: str) -> str:
    return (
        f"is outer joined with table {other!r}; a row without a matching record has no time at "
        f"which it would be emitted. Use left or inner"
    )


def late_tables(spec: TopologySpec, origins: set[str], use: str) -> Iterator[str]:
    """Yield the problems of tables whose changes are emitted only at commits.

    Args:
        spec: of the application.
        origins: the tables.
        use: that needs every change, for messages.
    """
    for name in sorted(origins):
        steps = spec.streams[name].steps if name in spec.streams else ()
        if any(step.aggregates is not None and step.aggregates.emit != "each" for step in steps):
            yield f"{use}, and {name!r} emits at commits only; give it emit: each"


def expiring_tables(spec: TopologySpec, origins: set[str], use: str) -> Iterator[str]:
    """Yield the problems of tables whose rows expire without a change; see `late_tables`."""
    for name in sorted(origins):
        steps = spec.streams[name].steps if name in spec.streams else ()
        has_ttl = any(step.aggregates is not None and step.aggregates.ttl for step in steps)
        if has_ttl or (name in spec.sources and spec.sources[name].ttl is not None):
            yield (
                f"{use}, and rows of {name!r} expire without a change that would delete "
                f"what was made of them; leave out its ttl, or join a stream with it"
            )


def origins_of(
    spec: TopologySpec, name: str, before: int | None = None, seen: frozenset[str] = frozenset()
) -> set[str]:
    """Return the sources and aggregates that hold the rows of a table.

    Args:
        spec: of the application.
        name: of the table.
        before: only up to this step of it.
        seen: tables on the path so far.
    """
    declared = spec.streams.get(name)
    if declared is None or name in seen:
        return {name}
    found = origins_of(spec, declared.from_[0], None, seen | {name})
    for step in declared.steps[:before]:
        if step.aggregates is not None:
            found = {name}
        elif step.join is not None and not step.join.is_within:
            found = found | origins_of(spec, step.join.with_, None, seen | {name})
    return found


def cogroup_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about aggregates of several streams."""
    for name, stream in app.spec.streams.items():
        for i, step in enumerate(stream.steps):
            if step.cogroup is None:
                continue
            path: SpecPath = ("streams", name, "steps", i, "cogroup")
            if i > 0:
                yield app.finding(
                    path,
                    "cogroup",
                    f"cogroup in {name!r} comes after other steps, where the streams of from: are "
                    f"one; make it the first step, and put the steps before it into streams of "
                    f"their own",
                )
            elif len(step.cogroup.add) != len(stream.from_):
                yield app.finding(
                    (*path, "add"),
                    "cogroup",
                    f"cogroup in {name!r} has {len(step.cogroup.add)} functions in add:, and from: "
                    f"has {len(stream.from_)} streams; state one function for each, in their order",
                )


def key_findings(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return joins and cogroups with keys of different serdes; the topology has no other errors."""
    facts = lowered.facts
    for name, stream in app.spec.streams.items():
        keys = {parent: facts[parent].written_key for parent in stream.from_}
        if stream.steps and stream.steps[0].cogroup is not None and len({*keys.values()}) > 1:
            listed = ", ".join(f"{parent!r}: {key}" for parent, key in keys.items())
            yield app.finding(
                ("streams", name, "from"),
                "cogroup-key",
                f"cogroup in {name!r} has inputs with different keys ({listed}); equal keys have "
                f"to be equal bytes, in the same partition. State the same key: for all, or give "
                f"them other keys with group_by",
            )
        key = facts[stream.from_[0]].key
        for i, step in enumerate(stream.steps):
            if step.group_by is not None:
                key = step.group_by.key or key
            if step.join is None or is_global(app.spec, step.join.with_):
                continue
            if step.join.key is not None:
                yield from _foreign_keys(app, step.join, ("streams", name, "steps", i, "join"))
                continue
            other = facts[step.join.with_].key
            if key != other:
                yield app.finding(
                    ("streams", name, "steps", i, "join", "with"),
                    "join-key",
                    f"stream {name!r} has {key} keys and {step.join.with_!r} has {other} keys; "
                    f"equal keys have to be equal bytes, in the same partition. State the same "
                    f"key: for both, or give one of them another key with group_by",
                )


def _foreign_keys(app: LoadedApp, join: JoinSpec, path: SpecPath) -> Iterator[Finding]:
    """Find a foreign key whose bytes would depend on a schema registry."""
    source = app.spec.sources.get(join.with_)
    if source is not None and app.serde(source.key).codec is not None:
        yield app.finding(
            (*path, "key"),
            "join-key",
            f"table {join.with_!r} has {source.key} keys, whose bytes a schema registry decides, "
            f"so no foreign key can be found by its bytes; give the table keys of another serde "
            f"in a topic of its own",
        )


def _serdes(app: LoadedApp, join: JoinSpec, path: SpecPath) -> Iterator[Finding]:
    for setting in ("value", "with_value"):
        if (serde := getattr(join, setting)) is not None:
            yield from app.refusals((*path, setting), "serde", partial(app.serde, serde))
