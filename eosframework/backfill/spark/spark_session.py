"""The Spark session of a backfill: a new one, or one on the context of the caller's.

A session on the caller's context has its own settings: both share the SparkContext, its executors
and jars, and nothing else.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from eosframework.backfill.spark.java_properties import PREFIX
from eosframework.backfill.spark.jvm import jvm_of, killed_on_interrupt, reason_of
from eosframework.backfill.spark.preflight import check_packages, check_session
from eosframework.errors import ComponentFailed, ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*,4]"
"""All cores of this machine; a task has four attempts, as on a cluster."""

_CONNECTOR_JAR = "spark-sql-kafka-0-10_2.13"

_REQUIRED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.files.minPartitionNum": "1",
}
"""Adaptive execution would coalesce shuffle partitions, and so tasks; file splits must not depend
on the size of the cluster."""

_DEFAULTS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 2**20),
}
"""Batch sizes of a task, unless set by the user."""

_STARTING = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Defaults of a new Spark context."""

_REPEATED_ERROR_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)
"""Loggers of each failed attempt of a task with its traceback; the last one is raised as well."""


def spark_session(master: str | None, options: Mapping[str, str]) -> SparkSession:
    """Return a session for backfills: on the active context, else on a new one.

    Args:
        master: of Spark, as for spark-submit; None: this machine, or the master of spark-submit.
        options: Spark's settings by name; those of the Kafka client (`kafka.…`) are ignored.

    Raises:
        ConfigurationError: Spark, its connector to Kafka or a suitable Java is missing, or an
            option cannot be set; nothing was started.
        ComponentFailed: the connector cannot be downloaded.
    """
    check_packages()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    given = {name: v for name, v in options.items() if not name.startswith(PREFIX)}
    running: Any = cast(Any, SparkContext)._active_spark_context  # noqa: SLF001
    if running is not None:
        if master is not None and master != running.master:
            raise ConfigurationError(
                f"Spark already runs on {running.master!r} in this process, so it cannot be "
                f"{master!r}; stop that session or leave the master out"
            )
        return own_session(SparkSession.builder.getOrCreate(), given)
    return own_session(_started(master, given, _with_connector), {})


def live_session(master: str | None, options: Mapping[str, str]) -> SparkSession:
    """Return the session of this process for live workers, which need no connector to Kafka.

    Args:
        master: of Spark, as for spark-submit; None: the master of spark-submit.
        options: Spark's settings by name.

    Raises:
        ConfigurationError: Spark or a suitable Java is missing, or it cannot be started.
    """
    check_packages("a worker on a Spark cluster")
    return _started(master, options, lambda _: {})


def own_session(spark: SparkSession, options: Mapping[str, str] | None = None) -> SparkSession:
    """Return a separate session on the caller's context; the caller's session stays unchanged.

    Raises:
        ConfigurationError: the session cannot read Kafka, or an option cannot be set any more.
    """
    from pyspark.errors import PySparkException

    check_session(spark)
    session = spark.newSession()
    chosen = dict(spark.sparkContext.getConf().getAll())
    defaults = {name: value for name, value in _DEFAULTS.items() if name not in chosen}
    for name, value in {**defaults, **(options or {}), **_REQUIRED}.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            raise ConfigurationError(
                f"{name}={value} cannot be set, because Spark already runs; give it where that "
                f"session is started"
            ) from error
    return session


def _started(
    master: str | None,
    given: Mapping[str, str],
    jars: Callable[[Mapping[str, str]], dict[str, str]],
) -> SparkSession:
    """Start Spark; under spark-submit, with its settings.

    Args:
        master: of Spark; None: this machine, or the master of spark-submit.
        given: settings of the user.
        jars: returns the settings that add jars, given those of the user.
    """
    from pyspark.sql import SparkSession

    from eosframework.embedded.java import find_spark_java

    builder = SparkSession.builder.appName("eosframework")
    settings = {**_STARTING, **given}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = master or given.get("spark.master") or LOCAL
        settings = {**_of_master(master), **settings, **jars(given)}
        os.environ["JAVA_HOME"] = str(find_spark_java().parent.parent)
        python = given.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
        os.environ["PYSPARK_PYTHON"] = python or sys.executable
    if master is not None:
        builder = builder.master(master)
    spark = _got(builder.config(map=dict(settings)), master)
    if "spark.log.level" not in given:
        logging = jvm_of(spark).org.apache.logging.log4j
        for name in _REPEATED_ERROR_LOGGERS:
            logging.core.config.Configurator.setLevel(name, logging.Level.OFF)
    return spark


def _got(builder: SparkSession.Builder, master: str | None) -> SparkSession:
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.errors import PySparkException

    try:
        with killed_on_interrupt():
            return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        where = "" if master is None else f" on {master!r}"
        raise ConfigurationError(
            f"Spark cannot be started{where}: {reason_of(error)}; correct the master or the "
            f"options (Java's own message is above)"
        ) from error


def _of_master(master: str) -> dict[str, str]:
    if not master.startswith("local"):
        return {}
    loopback = "127.0.0.1"
    return {
        "spark.driver.host": loopback,
        "spark.driver.bindAddress": loopback,
        "spark.sql.warehouse.dir": f"{tempfile.gettempdir()}/eosframework-spark-{os.getuid()}",
    }


def _with_connector(given: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that adds the connector, unless it is already present."""
    import pyspark

    from eosframework.embedded.jars import fetched, spark_connector

    jars = given.get("spark.jars", "")
    if _CONNECTOR_JAR in jars or _CONNECTOR_JAR in given.get("spark.jars.packages", ""):
        return {}
    home = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent))
    if any((home / "jars").glob(f"{_CONNECTOR_JAR}*")):
        return {}
    try:
        ours = sorted(fetched(spark_connector(pyspark.__version__)).glob("*.jar"))
    except ComponentFailed as error:
        raise ComponentFailed(
            f"{error}. If it is installed already, name it with --spark spark.jars=…, or let Spark "
            f"fetch it with --spark spark.jars.packages=…"
        ) from error
    return {"spark.jars": ",".join([*filter(None, jars.split(",")), *map(str, ours)])}
