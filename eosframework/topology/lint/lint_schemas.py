"""Lint rules for serdes that use a schema registry.

Only topics shared with other applications may use them. State and internal topics use the models of
the values, so that reading them needs no schema registry.
"""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.errors import TopologyError
from eosframework.serialization.schemas import Format, Registered
from eosframework.topology.lowering.lowering import Lowered
from eosframework.topology.spec.loaded import Finding, LoadedApp, SpecPath
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.topology.spec.tabular import is_global
from eosframework.topology.spec.topology_spec import SinkSpec, SourceSpec, StreamSpec


def schema_findings(app: LoadedApp) -> Iterator[Finding]:
    """Return the findings about single declarations."""
    for name, stream in app.spec.streams.items():
        for i, step in enumerate(stream.steps):
            for path, serde in _stated_inside(step):
                if (declared := _registered(serde)) is not None:
                    yield app.finding(
                        ("streams", name, "steps", i, step.operator, *path),
                        "schema",
                        f"stream {name!r}: {declared} stands where values stay inside the "
                        f"application, which takes no registry; state json or "
                        f"{declared.model or declared.message or 'module:Model'}",
                    )
        for i, sink in stream.sinks:
            yield from _written(app, name, i, sink)


def storage_findings(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return values that cannot be stored in their form; the topology has no other errors."""
    for name, source in app.spec.sources.items():
        yield from _tables(app, name, source)
    for name, stream in app.spec.streams.items():
        facts = [lowered.facts[parent] for parent in stream.from_]
        values, keys = [each.value for each in facts], [each.key for each in facts]
        yield from _unwritable_default(app, lowered, name, stream)
        waits = [s.join.with_ for s in stream.steps if s.join is not None and s.join.is_within]
        if waits or name in lowered.rows or _moves(lowered, name):
            others = [lowered.facts[other].value for other in waits]
            yield from _unkept(app, name, [*values, *others])
        if any(_goes_by_key(app, step) for step in stream.steps):
            regrouped = stream.steps and stream.steps[0].group_by is not None
            if not regrouped:
                yield from _keys(app, ("streams", name), f"stream {name!r}", keys)


def _registered(serde: str | None) -> Registered | None:
    """Return the registry options of a serde; another rule reports invalid ones."""
    try:
        return None if serde is None else Registered.parse(serde)
    except TopologyError:
        return None


def _stated_inside(step: StepSpec) -> Iterator[tuple[SpecPath, str | None]]:
    if step.aggregates is not None:
        yield ("value",), step.aggregates.value
    if step.group_by is not None:
        yield ("key",), step.group_by.key
        yield ("value",), step.group_by.value
    if step.join is not None:
        yield ("value",), step.join.value
        yield ("with_value",), step.join.with_value
    if step.handler is not None:
        for name, kept in step.handler.declared_stores.items():
            yield ("stores", name, "key"), kept.key
            yield ("stores", name, "value"), kept.value


def _written(app: LoadedApp, stream: str, i: int, sink: SinkSpec) -> Iterator[Finding]:
    for part in ("key", "value"):
        declared = _registered(getattr(sink, part))
        place = ("streams", stream, "to", i, part)
        if declared is not None and not declared.writes:
            yield app.finding(place, "schema", _no_schema(sink.label, stream, declared))
        elif declared is not None and sink.topic is None and declared.subject is None:
            yield app.finding(
                place,
                "schema",
                f"sink {sink.label!r} of stream {stream!r} chooses its topic for each record, so "
                f"the {part}'s subject does not follow from it; give {declared.format} a subject",
            )


def _unwritable_default(
    app: LoadedApp, lowered: Lowered, name: str, stream: StreamSpec
) -> Iterator[Finding]:
    """Find sinks that inherit the serde of a source and cannot write with it."""
    for i, sink in stream.sinks:
        for part in ("key", "value"):
            declared = _registered(getattr(lowered.facts[name], part))
            if getattr(sink, part) is not None or declared is None:
                continue
            place = ("streams", name, "to", i)
            if not declared.writes:
                yield app.finding(place, "schema", _no_schema(sink.label, name, declared))
            elif sink.topic is None:
                yield app.finding(
                    place,
                    "schema",
                    f"sink {sink.label!r} of stream {name!r} chooses its topic for each record, "
                    f"and would write each {part} as {declared}; state {part}: with a subject, or "
                    f"one without a schema",
                )


def _no_schema(sink: str, stream: str, declared: Registered) -> str:
    wanted = "schema" if declared.format is Format.AVRO else "schema or model"
    return (
        f"sink {sink!r} of stream {stream!r} writes {declared}, which has no schema to write with; "
        f"give it a {wanted}"
    )


def _moves(lowered: Lowered, name: str) -> bool:
    """Return True if records of a stream pass through a repartition topic."""
    return any(f"{name}." in writer for writer, _ in lowered.repartitions.values())


def _tables(app: LoadedApp, name: str, source: SourceSpec) -> Iterator[Finding]:
    if source.is_table and not source.global_:
        declared = _registered(source.value)
        if declared is not None and declared.format is Format.AVRO and declared.model is None:
            place = ("sources", name, "value")
            yield app.finding(place, "schema", _no_model(f"rows of source {name!r}", declared))
    if source.is_table or source.global_:
        yield from _keys(app, ("sources", name, "key"), f"table {name!r}", [source.key])


def _unkept(app: LoadedApp, name: str, values: list[str]) -> Iterator[Finding]:
    for declared in filter(None, map(_registered, values)):
        if declared.format is Format.AVRO and declared.model is None:
            place = ("streams", name)
            yield app.finding(place, "schema", _no_model(f"values of stream {name!r}", declared))


def _no_model(what: str, declared: Registered) -> str:
    return (
        f"{what} are kept inside the application, and are {declared}, whose maps JSON cannot keep "
        f"as they are; give avro a model, or make the values before they are kept"
    )


def _goes_by_key(app: LoadedApp, step: StepSpec) -> bool:
    joins = step.join is not None and not is_global(app.spec, step.join.with_)
    return joins or step.needs_key


def _keys(app: LoadedApp, path: SpecPath, what: str, keys: list[str]) -> Iterator[Finding]:
    for declared in filter(None, map(_registered, keys)):
        yield app.finding(
            path,
            "schema",
            f"{what} goes by keys that are {declared}: their bytes hold the schema's number, so "
            f"equal keys differ once it has a new version. Give the records another key: "
            f"group_by, with key: string",
        )
