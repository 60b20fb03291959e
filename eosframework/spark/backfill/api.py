"""The Python API of backfills: for notebooks, spark-submit and the command line.

A topology's operators on a DataFrame, without a job.
Nothing is written and no guarantee applies: rows go in, and the topology's outputs come out as
rows. The caller decides how to write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eosframework.application.context import connect
from eosframework.config import Settings, load_settings
from eosframework.errors import ConfigurationError
from eosframework.spark.job.job_entry import JobState
from eosframework.spark.job.stages import TABLE_FORMATS, FileRequest, Request
from eosframework.spark.session.executors import (
    BatchFunction,
    RecordBatch,
    batch_of,
    headers_type,
    map_batches,
    pack,
    unpack,
)
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Graph, SubTopology
from eosframework.topology.graph.walk import has_state, nodes_of, without_retries
from eosframework.topology.loader import load_app
from eosframework.topology.renaming import renamed
from eosframework.topology.resolve.resolve import resolve
from eosframework.transactions.ports import Output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eosframework.spark.job.job_entry import PinnedFile, PinnedTable

OnProgress = Callable[[JobState], object]
"""Called with the job's progress about once a second."""


class Backfill:
    """Runs a topology over a closed range of history exactly once, however often it is started.

    Args:
        app: a `Topology`, or its name as on the command line.
        job: name of the job; a job of the same name resumes.
        start: begins of ranges: `beginning`, a time, `TOPIC=WHERE` or `TOPIC[N]=OFFSET`; later ones
            override earlier ones. Default: the beginning.
        end: ends of ranges, likewise. Default: the end of each topic when the job starts.
        source: files that replace topics, each `TOPIC=FORMAT:PATH`.
        live_from: start of live workers in topics replaced by files.
        suffix: appended to the names of all topics and tables written, to compare them with the
            live ones.
        settings: of the application; None: from the environment.

    Raises:
        TopologyError: the topology cannot be loaded, or is inconsistent.
        ConfigurationError: a setting or an argument is invalid.
    """

    def __init__(
        self,
        app: str | Topology,
        *,
        job: str,
        start: Sequence[str] = (),
        end: Sequence[str] = (),
        source: Sequence[str] = (),
        live_from: Sequence[str] = (),
        suffix: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.graph = _graph_of(app, suffix)
        self.settings = settings or load_settings()
        self.job = job
        self.request = Request(
            tuple(start),
            tuple(end),
            tuple(source),
            tuple(live_from),
            () if suffix is None else (suffix,),
        )
        _ = self.request.files  # invalid sources are refused before Spark starts

    def run(
        self,
        spark: SparkSession | None = None,
        on_progress: OnProgress | None = None,
        options: Mapping[str, str] | None = None,
    ) -> JobState:
        """Run the rest of the job.

        Args:
            spark: a session with the Kafka connector, such as from `spark_session`; None: the
                active one, else a new one on this machine. It stays unchanged and open.
            on_progress: called with the job's progress.
            options: for Spark's Kafka client, `kafka.NAME` with the name in Java; they override the
                settings.

        Raises:
            StartRefused: a worker could not start either, or the application has state already.
            ConfigurationError: the range is not available, the job was started with another one, or
                the session or its executors lack a requirement.
            RunError: a record cannot be processed, or Spark gave up; the job can be started again.
        """
        from eosframework.spark.backfill.job_start import start
        from eosframework.spark.backfill.stage_runner import run_stages
        from eosframework.spark.session.spark_session import (
            own_session,
            require_executors,
            spark_session,
        )

        session = spark_session(None, {}) if spark is None else own_session(spark)

        def pinned(request: FileRequest) -> tuple[PinnedFile, ...] | PinnedTable:
            from eosframework.spark.backfill.file_rows import pin, pin_table

            options = request.spark_options
            if request.format in TABLE_FORMATS:
                return pin_table(session, request.format, request.paths[0], options)
            return pin(session, request.format, request.paths, options)

        require_executors(session)
        started = start(connect(self.graph, self.settings), self.job, self.request, pinned)
        return run_stages(session, started, on_progress or _silent, options or {})


def _silent(_: JobState) -> None:
    """Show nothing."""


def _graph_of(app: str | Topology, suffix: str | None = None) -> Graph:
    """Return the graph that a job runs: without retries, and all tables are filled at the end.

    Raises:
        TopologyError: the topology cannot be loaded, or is inconsistent.
        ConfigurationError: the suffix is invalid in names, or a source has a pattern.
    """
    loaded = load_app(app) if isinstance(app, str) else app.loaded()
    loaded = replace(loaded, spec=loaded.spec.with_later_tables())
    graph = resolve(loaded if suffix is None else renamed(loaded, suffix))
    if graph.patterns:
        one = graph.patterns[0]
        raise ConfigurationError(
            f"source {one.source!r} has the pattern {one.pattern!r}, and a backfill has a fixed "
            f"input: declare the topics as sources of a topology for the backfill, with an "
            f"application name of its own"
        )
    return without_retries(graph)


def spark_options(assignments: Sequence[str]) -> dict[str, str]:
    """Parse KEY=VALUE options of Spark and of its Kafka client.

    Raises:
        ConfigurationError: an option has another form.
    """
    options: dict[str, str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith(("spark.", "kafka.")):
            raise ConfigurationError(
                f"--spark {text!r} is not a setting of Spark; expected spark.NAME=VALUE, for "
                f"example spark.executor.memory=2g, or kafka.NAME=VALUE for its Kafka client"
            )
        options[name] = value
    return options


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
    graph = _graph_of(app)
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
        from eosframework.engine.codegen.compiler import compile_part
        from eosframework.engine.failures.failure_handler import FailureHandler
        from eosframework.spark.session.spark_rows import runs

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
