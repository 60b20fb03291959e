"""The Python API of backfills: for notebooks, spark-submit and the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from eosframework.application.context import connect
from eosframework.backfill.job.job_entry import JobState
from eosframework.backfill.job.stages import FileRequest, Request
from eosframework.config import Settings, load_settings
from eosframework.errors import ConfigurationError
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.walk import without_retries
from eosframework.topology.loader import load_app
from eosframework.topology.renaming import renamed
from eosframework.topology.resolve.resolve import resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eosframework.backfill.job.job_entry import PinnedFile

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
        self.graph = graph_of(app, suffix)
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
        from eosframework.backfill.job_start import start
        from eosframework.backfill.spark.spark_session import (
            own_session,
            require_executors,
            spark_session,
        )
        from eosframework.backfill.stage_runner import run_stages

        session = spark_session(None, {}) if spark is None else own_session(spark)

        def pinned(request: FileRequest) -> tuple[PinnedFile, ...]:
            from eosframework.backfill.spark.file_rows import pin

            return pin(session, request.format, request.paths, request.spark_options)

        require_executors(session)
        started = start(connect(self.graph, self.settings), self.job, self.request, pinned)
        return run_stages(session, started, on_progress or _silent, options or {})


def _silent(_: JobState) -> None:
    """Show nothing."""


def graph_of(app: str | Topology, suffix: str | None = None) -> Graph:
    """Return the graph that a job runs.

    Raises:
        TopologyError: the topology cannot be loaded, or is inconsistent.
        ConfigurationError: the suffix is invalid in names.
    """
    loaded = load_app(app) if isinstance(app, str) else app.loaded()
    return without_retries(resolve(loaded if suffix is None else renamed(loaded, suffix)))


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
