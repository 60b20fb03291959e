"""One Spark for all tests of this package: its start costs more than most of them."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eosframework.errors import EosError
from tests.conftest import KafkaService, missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.applications.spark_sinks import SinkWorld

SMALL = {
    "spark.driver.memory": "600m",
    "spark.driver.maxResultSize": "8m",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="package")
def spark_events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of Spark's event log."""
    return tmp_path_factory.mktemp("spark-events")


@pytest.fixture(scope="package")
def running_spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark_events: Path
) -> Iterator[SparkSession]:
    """Spark as a backfill starts it; its tasks run two at a time and are tried four times."""
    from eosframework.spark.session.spark_session import spark_session

    # Tasks import what is in the directory in which it is started.
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(request.config.rootpath), prepend=os.pathsep)
        patched.chdir(tmp_path_factory.mktemp("spark"))
        try:
            session = spark_session("local[2,4]", {**SMALL, **recorded_in(spark_events)})
        except EosError as error:
            missing(request, f"no Spark could be started: {error}", error)
    try:
        yield session
    finally:
        session.stop()
        _end_java()
        _collect_sockets()


def recorded_in(directory: Path) -> dict[str, str]:
    """Return the properties with which Spark writes its event log as plain text."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": directory.as_uri(),
    }


@pytest.fixture(scope="module")
def spark(running_spark: SparkSession) -> Iterator[SparkSession]:
    """A session that a module has for itself."""
    from eosframework.spark.session.spark_session import own_session

    yield own_session(running_spark)
    _collect_sockets()


def _end_java() -> None:
    """End what pyspark keeps for another session, until this process ends."""
    from pyspark import SparkContext

    context: Any = SparkContext
    gateway, context._gateway, context._jvm = context._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


def _collect_sockets() -> None:
    """Collect what pyspark leaves to the garbage collector, before that warns in another test."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
        gc.collect()


@pytest.fixture
def world(
    spark: SparkSession, kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[SinkWorld]:
    """A topic, a checkpoint and sinks on the one Spark; its queries are stopped."""
    from tests.support.applications.spark_sinks import SinkWorld

    made = SinkWorld(spark, kafka.bootstrap_servers, unique_name("sink"), tmp_path)
    yield made
    made.stop()
