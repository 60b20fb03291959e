"""What a backfill needs of Spark is looked at before anything is started."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from eosframework.embedded import jars as java
from eosframework.errors import ConfigurationError
from eosframework.spark.session.spark_session import check_packages, failed_job, spark_session
from eosframework.spark.workers.launch import DAEMON


@pytest.mark.parametrize("name", ["pyspark", "pyarrow", "pandas"])
def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(
        ConfigurationError, match=rf"{name} is not installed.*eosframework\[spark\]"
    ):
        check_packages()


def test_a_spark_of_another_series_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("pyspark")
    monkeypatch.setattr(old, "__version__", "3.5.4", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", old)

    with pytest.raises(ConfigurationError, match=r"pyspark 3\.5\.4 is installed.*needs version 4"):
        check_packages()


def test_without_a_java_that_runs_spark_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nothing = tmp_path_factory.mktemp("nothing")
    monkeypatch.setenv("PATH", str(nothing))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_INSTALLED", nothing)

    with pytest.raises(ConfigurationError, match=r"Spark needs Java 17 or 21"):
        spark_session(None, {"spark.jars": "spark-sql-kafka-0-10_2.13.jar"})


def test_executors_whose_python_has_no_framework_for_the_daemon_are_named() -> None:
    """The message of Spark's job contains what Python prints."""
    without_packages = [sys.executable, "-I", "-S", "-m", DAEMON]
    ended = subprocess.run(without_packages, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    remedy = failed_job(f"Error from python worker:\n  {ended.stderr}PYTHONPATH was:\n")
    assert remedy.startswith("executors have no eosframework ")
    assert "spark.pyspark.python" in remedy
