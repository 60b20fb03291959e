"""A backfill from Python: in a notebook, under spark-submit, or behind the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from eosframework.backfill.job.job_state import JobState
from eosframework.backfill.job.request import FileRequest, Request
from eosframework.config import Settings, load_settings
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.retry_topics import without_retries
from eosframework.topology.loader import load_app
from eosframework.topology.renaming import renamed
from eosframework.topology.resolve.resolve import resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eosframework.backfill.job.job_entry import PinnedFile

Shown = Callable[[JobState], object]
"""Told how far a job is, about once a second."""


class Backfill:
    """Runs a topology over a closed range of history, exactly once, however often it is started.

    Args:
        app: a `Topology`, or what names one as on the command line.
        job: name of the job; the same name goes on where it was.
        start: where ranges begin: `beginning`, a time, `TOPIC=WHERE` or `TOPIC[N]=OFFSET`; later
            ones overrule earlier ones. Default: the beginning.
        end: where they end, likewise. Default: the end of each topic when the job starts.
        source: files that stand for topics, each `TOPIC=FORMAT:PATH`.
        live_from: where live workers are to begin in topics for which files stand.
        suffix: behind the names of all that is written, to compare it with what is there.
        settings: of the application; None: from the environment.

    Raises:
        TopologyError: the topology cannot be loaded, or does not hold together.
        ConfigurationError: a setting or an argument cannot be used.
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
        _ = self.request.files  # refused before Spark is started

    def run(
        self,
        spark: SparkSession | None = None,
        shown: Shown | None = None,
        options: Mapping[str, str] | None = None,
    ) -> JobState:
        """Run what is left of the job.

        Args:
            spark: a session that has the Kafka connector, as `spark_session` gives; None: the
                active one, else one on this machine. It stays as it is, and open.
            shown: told how far the job is.
            options: for Spark's Kafka client, `kafka.NAME` as Java calls it, before what follows
                from the settings.

        Raises:
            StartRefused: a worker could not start either, or the application has state already.
            ConfigurationError: the range cannot be had, the job was started with another one, or
                the session or its executors lack something.
            RunError: a record cannot be processed, or Spark gave up; the job can be started again.
        """
        from eosframework.backfill.driver.job_start import start
        from eosframework.backfill.driver.stage_runner import run_stages
        from eosframework.backfill.spark.preflight import require_executors
        from eosframework.backfill.spark.spark_session import own_session, spark_session

        session = spark_session(None, {}) if spark is None else own_session(spark)

        def pinned(request: FileRequest) -> tuple[PinnedFile, ...]:
            from eosframework.backfill.spark.file_rows import pin

            return pin(session, request.format, request.paths, request.spark_options)

        require_executors(session)
        admin = ClusterAdmin(self.settings.kafka)
        started = start(self.graph, self.settings, self.job, self.request, admin, pinned)
        return run_stages(session, started, shown or _silent, options or {})


def _silent(_: JobState) -> None:
    """Show nothing."""


def graph_of(app: str | Topology, suffix: str | None = None) -> Graph:
    """Return the graph of what a job runs.

    Raises:
        TopologyError: the topology cannot be loaded, or does not hold together.
        ConfigurationError: the suffix cannot be part of names.
    """
    loaded = load_app(app) if isinstance(app, str) else app.loaded()
    return without_retries(resolve(loaded if suffix is None else renamed(loaded, suffix)))


def spark_options(assignments: Sequence[str]) -> dict[str, str]:
    """Return Spark's settings, and those of its Kafka client, out of KEY=VALUE.

    Raises:
        ConfigurationError: one is not of that form.
    """
    options: dict[str, str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith(("spark.", "kafka.")):
            raise ConfigurationError(
                f"--spark {text!r} is no setting of Spark; expected spark.NAME=VALUE, for example "
                f"spark.executor.memory=2g, or kafka.NAME=VALUE for its Kafka client"
            )
        options[name] = value
    return options
