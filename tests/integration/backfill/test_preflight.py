"""Sessions and executors that lack something are refused with one message that says what."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eosframework.embedded.jars import spark_connector_version
from eosframework.errors import ConfigurationError
from eosframework.spark.session.spark_session import check_executors, own_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT_CONNECTOR = """\
from pyspark.sql import SparkSession
from eosframework.spark.session.spark_session import own_session, spark_session
from eosframework.errors import ConfigurationError

try:
    spark_session("nonsense", {})
except ConfigurationError as error:
    print(error)
plain = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    own_session(plain)
except ConfigurationError as error:
    print(error)
plain.stop()
"""


PRETENDING = """\
import sys
from collections import namedtuple

sys.version_info = namedtuple("Version", "major minor micro releaselevel serial")(3, 99, 1, "", 0)
"""

WITHOUT_ARROW = f"""\
import sys
from importlib import metadata

sys.path += {sys.path!r}
version = metadata.version

def others(name):
    if name == "pyarrow":
        raise metadata.PackageNotFoundError(name)
    return version(name)

metadata.version = others
"""


def bare_python(directory: Path, customization: str = "") -> Path:
    """An interpreter that has no package at all."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "sitecustomize.py").write_text(customization)
    return directory / "bin" / "python"


@pytest.mark.exhaustive
def test_a_session_without_the_connector_and_a_master_that_is_none_are_refused(
    tmp_path: Path,
) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_CONNECTOR],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "Spark cannot be started on 'nonsense'" in finished.stdout
    assert "cannot read Kafka: the class org.apache.spark.sql.kafka010" in finished.stdout
    connector = spark_connector_version(metadata.version("pyspark"))
    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}"
    assert f"--packages {package} (spark-submit)" in finished.stdout


def test_executors_that_have_all_that_is_needed_tell_where_they_are(spark: SparkSession) -> None:
    (executor,) = check_executors(spark)

    assert executor.interpreter == sys.executable
    assert executor.version == metadata.version("eosframework")


@pytest.mark.parametrize(
    ("customization", "said"),
    [
        (
            "",
            r"cannot run eosframework: PackageNotFoundError.*Install eosframework .*PYSPARK_PYTHON",
        ),
        pytest.param(
            WITHOUT_ARROW,
            r"cannot run eosframework: PackageNotFoundError.* pyarrow\. Install .*extra 'spark'",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            PRETENDING,
            r"executors run Python 3\.99, but here it is 3\.\d+.*PYSPARK_PYTHON",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_executors_with_another_python_are_refused(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    customization: str,
    said: str,
) -> None:
    bare = bare_python(tmp_path / "bare", customization)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))

    with pytest.raises(ConfigurationError, match=said):
        check_executors(spark)


def test_executors_without_the_python_that_was_named_are_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")

    with pytest.raises(ConfigurationError, match=r"executors have no '/nowhere/python'.*PYSPARK"):
        check_executors(spark)


def test_executors_with_another_version_are_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "99.0")

    with pytest.raises(ConfigurationError, match=r"has eosframework \S+, but here it is 99\.0"):
        check_executors(spark)


def test_a_session_of_ours_leaves_the_callers_as_it_is(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")

    ours = own_session(spark, {"spark.sql.shuffle.partitions": "3"})

    assert ours.conf.get("spark.sql.session.timeZone") == "UTC"
    assert ours.conf.get("spark.sql.adaptive.enabled") == "false"
    assert ours.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert spark.conf.get("spark.sql.shuffle.partitions") != "3"
    assert ours.sparkContext is spark.sparkContext


def test_what_cannot_be_changed_while_spark_runs_is_refused_by_name(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.executor\.memory=9g cannot be set"):
        spark_session(None, {"spark.executor.memory": "9g", "kafka.fetch.max.bytes": "1"})
    with pytest.raises(ConfigurationError, match=r"runs on 'local\[2,4\]'.*cannot be 'yarn'"):
        spark_session("yarn", {})
