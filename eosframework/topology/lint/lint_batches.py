"""Lint rules for batch operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from importlib.util import find_spec

from eosframework.errors import TopologyError
from eosframework.serialization.serdes import BYTES, FLOAT, INTEGER, JSON, STRING
from eosframework.topology.lowering.parts import in_order
from eosframework.topology.spec.batch_columns import Columns, columns_of
from eosframework.topology.spec.loaded import Finding, LoadedApp, SpecPath
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.topology_spec import StreamSpec, TableSpec


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
