"""Lint rules for table sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import get_args, get_origin, get_type_hints

from pydantic import BaseModel

from eosframework.errors import TopologyError, raised_by_functions
from eosframework.topology.lowering.lowering import reads_source
from eosframework.topology.spec.loaded import Finding, LoadedApp, Severity
from eosframework.topology.spec.topology_spec import StreamSpec, TableSpec


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
