"""A topology's operators on a DataFrame, without a job.

Nothing is written and no guarantee applies: rows go in, and the topology's outputs come out as
rows. The caller decides how to write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from eosframework.backfill.api import graph_of
from eosframework.backfill.spark.executors import (
    BatchFunction,
    RecordBatch,
    batch_of,
    headers_type,
    map_batches,
    pack,
    unpack,
)
from eosframework.errors import ConfigurationError
from eosframework.processing.ports import Output
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Graph, SubTopology
from eosframework.topology.graph.walk import has_state, nodes_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUTPUT_SCHEMA = (
    "topic string, key binary, value binary, timestamp bigint, "
    "headers array<struct<key: string, value: binary>>"
)
"""Columns of Spark's Kafka sink, and the event time in milliseconds since the epoch."""

_OPTIONAL = {
    "key": "CAST(NULL AS BINARY)",
    "topic": "CAST(NULL AS STRING)",
    "partition": "0",
    "offset": "CAST(NULL AS BIGINT)",
    "timestamp": "0L",
    "headers": "CAST(NULL AS array<struct<key: string, value: binary>>)",
}


def outputs_of(app: str | Topology, rows: DataFrame, topic: str | None = None) -> DataFrame:
    """Return a topology's outputs for rows of one of its source topics (`OUTPUT_SCHEMA`).

    Args:
        app: a `Topology`, or its name as on the command line.
        rows: with a column `value` of bytes, and those of `key`, `timestamp`, `headers`, `topic`,
            `partition` and `offset` that the functions use, as in Spark's Kafka source.
        topic: the source topic of the rows; None: the topology has only one.

    Raises:
        TopologyError: the topology cannot be loaded, or is inconsistent.
        ConfigurationError: it does not read the topic, or a step is stateful and needs the records
            of a task in order; names the step.
    """
    graph = graph_of(app)
    part, read = _part_of(graph, topic)
    _refuse_keeping(part)
    return map_batches(_as_rows(rows, read), _running(pack(graph), read), OUTPUT_SCHEMA)


def _part_of(graph: Graph, topic: str | None) -> tuple[SubTopology, str]:
    readers = graph.readers
    if topic is None and len(readers) == 1:
        [topic] = readers
    if topic is None or topic not in readers:
        asked = "no topic is named" if topic is None else f"{topic!r} is none of its source topics"
        raise ConfigurationError(
            f"application {graph.application!r}: {asked}; it reads {', '.join(sorted(readers))}"
        )
    return readers[topic], topic


def _refuse_keeping(part: SubTopology) -> None:
    if has_state(part):
        plain = {"Source", "Step", "Sink"}
        names = [node.name for node in nodes_of(part) if type(node).__name__ not in plain]
        raise ConfigurationError(
            f"step {names[0]!r} remembers records, which rows of a DataFrame cannot give it: they "
            f"have no order. Run it as a job: eosframework backfill run, or Backfill(…).run()"
        )


def _as_rows(rows: DataFrame, topic: str) -> DataFrame:
    types = dict(rows.dtypes)
    if types.get("value") != "binary":
        raise ConfigurationError(
            f"the rows have a column value of {types.get('value', 'no type: there is none')}; "
            f"expected bytes, as in the topic, for example encoded by to_json(…).cast('binary')"
        )
    columns = {name: name if name in types else text for name, text in _OPTIONAL.items()}
    columns["topic"] = f"'{topic}'"
    if types.get("timestamp") == "timestamp":
        columns["timestamp"] = "unix_millis(timestamp)"
    return rows.selectExpr("value", *(f"{text} AS {name}" for name, text in columns.items()))


def _running(packed: bytes, topic: str) -> BatchFunction:
    def run(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        from eosframework.backfill.spark.spark_rows import runs
        from eosframework.processing.codegen.compiler import compile_part
        from eosframework.processing.failures.failure_handler import FailureHandler

        part = next(p for p in unpack(packed).sub_topologies if topic in _topics(p))
        source = compile_part(part).sources[topic]
        failures = FailureHandler()
        for _, of_partition in runs(batches):
            for _, messages in of_partition:
                out: list[Output] = []
                source.run(messages, out, 0, failures)
                if out:
                    yield batch_of([_row(output) for output in out], _columns())

    return run


def _topics(part: SubTopology) -> set[str]:
    return {source.topic for source in part.sources}


def _row(output: Output) -> tuple[Any, ...]:
    topic, value, key, _, _, _, timestamp, headers = output
    pairs = [{"key": name, "value": value} for name, value in headers] if headers else None
    return topic, key, value, timestamp, pairs


def _columns() -> dict[str, Any]:
    return {
        "topic": "string",
        "key": "binary",
        "value": "binary",
        "timestamp": "int64",
        "headers": headers_type(),
    }
