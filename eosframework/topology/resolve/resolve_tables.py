"""The resolution of table sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import (
    Function,
    OnError,
    Policy,
    SinkTable,
    TableMode,
    TableSink,
)
from eosframework.topology.lowering.parts import connected_parts, name_of_part
from eosframework.topology.spec.loaded import LoadedApp
from eosframework.topology.spec.topology_spec import StreamSpec


def table_sinks(
    app: LoadedApp,
    policies: Mapping[str, OnError],
    serdes_of_rows: Mapping[str, tuple[Serde, Serde]],
    own: Mapping[str, str],
) -> tuple[TableSink, ...]:
    """Return the table sinks of a topology, one for each topic.

    Args:
        app: the topology; it has no errors.
        policies: by stream.
        serdes_of_rows: of key and value, by the streams that have a topic of rows.
        own: these topics, by stream.
    """
    spec = app.spec
    writers = {
        stream: name_of_part(spec, part)
        for part in connected_parts(spec)
        for stream in part.streams
    }
    found: dict[str, TableSink] = {}
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
        found[topic] = TableSink(name, topic, key, value, tables, policy, writer)
    return tuple(found.values())


def _tables(
    app: LoadedApp, name: str, stream: StreamSpec, value: Serde, policy: Policy
) -> Iterator[SinkTable]:
    for _, table in stream.tables:
        row = None if table.row is None else Function(table.row, app.find(table.row))
        model = None if row is not None else value.model
        yield SinkTable(
            name=f"{name}.to({table.label})",
            table=table.table,
            mode=TableMode(table.mode),
            keys=table.keys,
            row=row,
            model=model if table.model is None else app.find_model(table.model),
            on_error=policy if table.on_error is None else Policy(table.on_error),
        )


def _decoding(declared: Any, inherited: OnError) -> Policy:
    if declared is None:
        return inherited.policy
    return Policy(declared) if isinstance(declared, str) else Policy.DEAD_LETTER
