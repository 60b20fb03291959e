"""The table sinks of a spec: the topics of their rows, and their lint rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from eosframework.errors import TopologyError, raised_by_functions
from eosframework.serialization.serdes import Serde, internal_serde_name
from eosframework.topology.graph.graph import (
    Function,
    OnError,
    Persister,
    Policy,
    TableMode,
    TableSink,
)
from eosframework.topology.lowering.lowering import RecordFacts
from eosframework.topology.lowering.parts import connected_parts, name_of_part
from eosframework.topology.spec.loaded import Finding, LoadedApp, Severity
from eosframework.topology.spec.topology_spec import StreamSpec, TableSpec, TopologySpec
from eosframework.txnid import rows_topic


def reads_source(spec: TopologySpec, stream: StreamSpec) -> bool:
    """Return True if the records of a stream are those of a source, unchanged."""
    return stream.is_source and stream.from_[0] in spec.sources


def rows_topics(spec: TopologySpec) -> dict[str, str]:
    """Return the topics of rows for the database, by stream.

    A stream that is an unchanged source needs none: the table writer reads its topic.
    """
    return {
        name: rows_topic(spec.application, name)
        for name, stream in spec.streams.items()
        if stream.tables and not reads_source(spec, stream)
    }


def rows_serdes(spec: TopologySpec, name: str, facts: RecordFacts) -> tuple[str, str]:
    """Return the serdes of key and value in a stream's topic of rows.

    Args:
        spec: the topology.
        name: of the stream.
        facts: facts about its records.
    """
    tables = [table for _, table in spec.streams[name].tables]
    models = (table.model for table in tables if table.row is None)
    values = (*(table.value for table in tables), *models)
    made = "json" if facts.new_value else internal_serde_name(facts.value)
    return (
        next((table.key for table in tables if table.key), internal_serde_name(facts.key)),
        next((value for value in values if value), made),
    )


def table_sinks(
    app: LoadedApp,
    policies: Mapping[str, OnError],
    serdes_of_rows: Mapping[str, tuple[Serde, Serde]],
) -> tuple[Persister, ...]:
    """Return the table sinks of a topology, one for each topic.

    Args:
        app: the topology; it has no errors.
        policies: by stream.
        serdes_of_rows: of key and value, by the streams that have a topic of rows.
    """
    spec, own = app.spec, rows_topics(app.spec)
    writers = {
        stream: name_of_part(spec, part)
        for part in connected_parts(spec)
        for stream in part.streams
    }
    found: dict[str, Persister] = {}
    for name, stream in spec.streams.items():
        if not stream.tables:
            continue
        if name in own:
            key, value = serdes_of_rows[name]
            topic, policy, writer = own[name], Policy.FAIL, writers[name]
        else:
            source = spec.sources[stream.from_[0]]
            key = app.serde_at(source.key, source.topic, is_key=True)
            value = app.serde_at(source.value, source.topic)
            topic, policy, writer = source.topic, _decoding(source.on_error, policies[name]), None
        tables = tuple(_tables(app, name, stream, value, policies[name].policy))
        if (twin := found.get(topic)) is not None:
            tables, name, policy = (*twin.tables, *tables), twin.name, twin.on_error
        found[topic] = Persister(name, topic, key, value, tables, policy, writer)
    return tuple(found.values())


def table_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about tables."""
    for name, stream in app.spec.streams.items():
        for i, table in stream.tables:
            yield from _model_findings(app, name, i, table)
            yield from _maps_as_models(app, name, i, table)
        yield from _different_serdes(app, name, stream)
        yield from _tables_twice(app, name, stream)


def _tables(
    app: LoadedApp, name: str, stream: StreamSpec, value: Serde, policy: Policy
) -> Iterator[TableSink]:
    for _, table in stream.tables:
        row = None if table.row is None else Function(table.row, _found(app, table.row))
        model = None if row is not None else value.model
        yield TableSink(
            name=f"{name}.to({table.label})",
            table=table.table,
            mode=TableMode(table.mode),
            keys=table.keys,
            row=row,
            model=model if table.model is None else _found(app, table.model),
            on_error=policy if table.on_error is None else Policy(table.on_error),
        )


def _found(app: LoadedApp, reference: str) -> Any:
    found = app.find(reference)
    return found.model if isinstance(found, Serde) else found


def _decoding(declared: Any, inherited: OnError) -> Policy:
    if declared is None:
        return inherited.policy
    return Policy(declared) if isinstance(declared, str) else Policy.DEAD_LETTER


def _model_findings(app: LoadedApp, name: str, i: int, table: TableSpec) -> Iterator[Finding]:
    if table.model is None:
        return
    place = ("streams", name, "to", i, "model")
    try:
        model = _found(app, table.model)
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
