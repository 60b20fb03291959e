"""The requirements of a backfill on Spark, checked before a job starts.

1. pyspark and pyarrow here  2. a Java that runs Spark  3. the connector to Kafka
4. on the executors: the same Python and eosframework as here
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import TYPE_CHECKING

from eosframework.backfill.spark.jvm import class_exists
from eosframework.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"

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


def check_session(spark: SparkSession) -> None:
    """Check that a session is suitable: a classic one with the connector (3).

    Raises:
        ConfigurationError: names the missing part and its remedy.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            "the session is one of Spark Connect, which does not let a backfill reach the cluster "
            "files and jars that it needs; use a classic SparkSession, for example that of "
            "spark-submit"
        )
    if not class_exists(spark, CONNECTOR):
        from eosframework.embedded.jars import spark_connector_version

        version = spark_connector_version(spark.version)
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
        raise ConfigurationError(
            f"this Spark session cannot read Kafka: the class {CONNECTOR} is missing. Start it "
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
            import_module("eosframework.backfill.executor.functions")  # preloaded for the attempts
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
