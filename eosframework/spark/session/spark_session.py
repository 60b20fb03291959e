"""The Spark session of a backfill: a new one, or one on the context of the caller's.

A session on the caller's context has its own settings: both share the SparkContext, its executors
and jars, and nothing else.

The requirements of a backfill on Spark, checked before a job starts.
1. pyspark and pyarrow here  2. a Java that runs Spark  3. the connector to Kafka
4. on the executors: the same Python and eosframework as here
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from eosframework.errors import ComponentFailed, ConfigurationError
from eosframework.spark.session.java_properties import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jvm_of(spark: SparkSession) -> Any:
    """Return the view of the JVM's packages and classes."""
    return cast(Any, spark.sparkContext)._jvm  # noqa: SLF001


def class_exists(spark: SparkSession, name: str) -> bool:
    """Return whether the driver can load a class."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    loader = jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(name)
    except Py4JError:
        return False
    return True


def hadoop_path(spark: SparkSession, text: str) -> Any:
    """Return a path of any Hadoop file system."""
    return jvm_of(spark).org.apache.hadoop.fs.Path(text)


def file_system_of(spark: SparkSession, path: Any) -> Any:
    """Return the file system that a path is on."""
    context: Any = cast(Any, spark.sparkContext)._jsc  # noqa: SLF001
    return path.getFileSystem(context.hadoopConfiguration())


def quiet_bridge() -> None:
    """Keep the log messages of the bridge to the JVM out of the log; it also raises its failures.

    Ctrl-C during a call causes some, partly without a logger of its own.
    """
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_not_of_the_bridge)


def quiet_server(spark: SparkSession) -> None:
    """Keep tracebacks of the accumulator server off the terminal.

    It prints one when the JVM is killed; the code that waits for the JVM gets an error anyway.
    """
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = _ignore_error


@contextmanager
def killed_on_interrupt() -> Generator[None]:
    """Kill a JVM that was starting in the block when Ctrl-C came.

    It would be unreachable and never end: it waits for the end of its standard input, which
    pyspark's child process never sees.
    """
    import psutil

    known = {child.pid for child in psutil.Process().children()}
    try:
        yield
    except KeyboardInterrupt:
        for child in psutil.Process().children():
            if child.pid not in known:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        raise


def stop_session(spark: SparkSession) -> None:
    """End Spark; a JVM that has ended already needs nothing more."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    with warnings.catch_warnings(), suppress(Py4JError, OSError):
        warnings.simplefilter("ignore")
        spark.stop()


def _ignore_error(*_: object) -> None:
    """Replace `socketserver.BaseServer.handle_error`."""


def _is_not_of_the_bridge(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def reason_of(error: Exception) -> str:
    """Return the JVM's error message, in one line."""
    cause: Any = getattr(error, "java_exception", None)
    return str(cause.toString() if cause is not None else error).strip().splitlines()[0]


_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"

_INSTALL = "run: pip install 'eosframework[spark]'"
_NAME_PYTHON = (
    "name another Python with --spark spark.pyspark.python=PATH or the variable PYSPARK_PYTHON"
)
_SPARK_SERIES = "4"
_MOST_TASKS = 1000
_PYTHON_ERROR = re.compile(r"^ *((?:\w+\.)*\w+Error: .*)$", re.M)

_CHECKED: set[str] = set()
"""Ids of Spark applications whose executors passed the check."""

_Answer = tuple[str, str, str, str]
"""Of an executor: host, interpreter, version and missing requirement."""


def check_packages(user: str = "a backfill") -> None:
    """Check that pyspark, pyarrow and pandas, which pyspark needs, are installed (1).

    Args:
        user: of Spark, for messages.

    Raises:
        ConfigurationError: names the missing package, or the unsupported version.
    """
    for name in ("pyspark", "pyarrow", "pandas"):
        try:
            import_module(name)
        except ImportError as error:
            raise ConfigurationError(
                f"{user} runs on Spark, but the package {name} is not installed; {_INSTALL}"
            ) from error
    version: str = import_module("pyspark").__version__
    if version.partition(".")[0] != _SPARK_SERIES:
        raise ConfigurationError(
            f"pyspark {version} is installed, but {user} needs version {_SPARK_SERIES}; {_INSTALL}"
        )


def refuse_connect(spark: SparkSession, user: str) -> None:
    """Refuse a session of Spark Connect.

    Args:
        spark: the session.
        user: of Spark, for messages.

    Raises:
        ConfigurationError: it is one.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            f"the session is one of Spark Connect, which does not let {user} reach the files, jars "
            f"and checkpoints that it needs; use a classic SparkSession, for example that of "
            f"spark-submit"
        )


def _check_session(spark: SparkSession) -> None:
    """Check that a session is suitable: a classic one with the connector (3).

    Raises:
        ConfigurationError: names the missing part and its remedy.
    """
    refuse_connect(spark, "a backfill")
    if not class_exists(spark, _CONNECTOR):
        from eosframework.embedded.jars import spark_connector_version

        version = spark_connector_version(spark.version)
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
        raise ConfigurationError(
            f"this Spark session cannot read Kafka: the class {_CONNECTOR} is missing. Start it "
            f"with --packages {package} (spark-submit), or with .config('spark.jars.packages', "
            f"'{package}'), or let the backfill start its own session"
        )


@dataclass(frozen=True, slots=True, order=True)
class Executor:
    """The properties of one executor.

    Args:
        version: of eosframework.
        missing: reason why it cannot be used; empty: it can.
    """

    host: str
    interpreter: str
    version: str
    missing: str


def require_executors(spark: SparkSession) -> None:
    """Check the executors of a session, once for each Spark application.

    Raises:
        ConfigurationError: see `check_executors`.
    """
    name = str(spark.sparkContext.applicationId)
    if name not in _CHECKED:
        check_executors(spark)
        _CHECKED.add(name)


def check_executors(spark: SparkSession) -> list[Executor]:
    """Check that executors have this Python and this eosframework, by a small job (4).

    Raises:
        ConfigurationError: names the host, its version and the expected one.
    """
    look = _looking()
    here = Executor(*look(0))
    executors = sorted(Executor(*answer) for answer in _ask(spark, look))
    for executor in executors:
        where = f"the executor on {executor.host} ({executor.interpreter})"
        if executor.version not in ("", here.version):
            raise ConfigurationError(
                f"{where} has eosframework {executor.version}, but here it is {here.version}; "
                f"install the same version there, or {_NAME_PYTHON}"
            )
        if executor.missing:
            raise ConfigurationError(
                f"{where} cannot run eosframework: {executor.missing}. Install eosframework "
                f"{here.version} with its extra 'spark' there, or {_NAME_PYTHON}"
            )
    return executors


def _looking() -> Callable[[int], _Answer]:
    """Return the function for executors; it is pickled by value, as it belongs to no module."""

    def look(_: int) -> _Answer:
        import platform
        import sys
        from importlib import import_module, metadata

        missing = version = ""
        try:
            version = metadata.version("eosframework")
            metadata.version("pyarrow")  # not imported: only tasks with rows need it
            import_module("eosframework.spark.executor.functions")  # preloaded for the attempts
        except Exception as error:
            missing = f"{type(error).__name__}: {error}"
        return platform.node(), sys.executable, version, missing

    return look


def _ask(spark: SparkSession, look: Callable[[int], _Answer]) -> set[_Answer]:
    """Return the executors' answers; more tasks than cores reach all of them."""
    from py4j.protocol import Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.errors import PySparkException

    context = spark.sparkContext
    tasks = min(2 * context.defaultParallelism, _MOST_TASKS)
    try:
        return set(context.parallelize(range(tasks), tasks).map(look).collect())
    except (Py4JJavaError, PySparkException) as error:
        raise ConfigurationError(failed_job(str(error))) from error


def failed_job(text: str) -> str:
    """Return the remedy for a small job that failed."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if "PYTHON_VERSION_MISMATCH" in text:
        found = re.search(r"different version: (\S+)", text)
        its = found[1] if found else "another version"
        return (
            f"executors run Python {its}, but here it is {here}; functions are pickled by "
            f"value, so {_NAME_PYTHON}, which has to be {here}"
        )
    if missing := re.search(r'Cannot run program "([^"]+)"', text):
        return f"executors have no {missing[1]!r}; {_NAME_PYTHON}"
    if "No module named 'eosframework" in text:
        version = metadata.version("eosframework")
        return (
            f"executors have no eosframework {version}; install it there with its extra 'spark', "
            f"or {_NAME_PYTHON}"
        )
    reason = found[-1] if (found := _PYTHON_ERROR.findall(text)) else text[:200]
    return f"a small job on the executors failed: {reason}; nothing was started"


_LOCAL = "local[*,4]"
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

_CATALOG = "spark.sql.catalog."
"""Prefix of the settings of catalogs, such as those of Iceberg, which a caller's session may have
for itself."""

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

    _check_session(spark)
    session = spark.newSession()
    chosen = dict(spark.sparkContext.getConf().getAll())
    catalogs = {n: v for n, v in spark.conf.getAll.items() if n.startswith(_CATALOG)}
    defaults = {name: value for name, value in _DEFAULTS.items() if name not in chosen}
    for name, value in {**catalogs, **defaults, **(options or {}), **_REQUIRED}.items():
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

    from eosframework.embedded.jars import find_spark_java

    builder = SparkSession.builder.appName("eosframework")
    settings = {**_STARTING, **given}
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = master or given.get("spark.master") or _LOCAL
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
