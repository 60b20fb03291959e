from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from eosframework.embedded.jars import (
    KAFKA_VERSION,
    cache_directory,
    damaged_jars,
    kafka_release,
    kafka_versions,
    locked_jars,
    parse_lock,
    spark_connector,
)
from eosframework.errors import ConfigurationError

DIGEST = "0" * 64


@pytest.mark.parametrize("version", kafka_versions())
def test_the_lock_names_kafka_and_a_binding_for_its_log(version: str) -> None:
    names = set(locked_jars(kafka_release(version)))

    assert {f"kafka_2.13-{version}.jar", f"kafka-clients-{version}.jar"} <= names
    assert any(name.startswith("log4j-slf4j-impl-") for name in names)


def test_each_minor_version_from_4_0_on_is_locked_once_and_the_default_is_the_newest() -> None:
    minors = [version.rpartition(".")[0] for version in kafka_versions()]

    assert minors == [f"4.{minor}" for minor in range(len(minors))]
    assert kafka_versions()[-1] == KAFKA_VERSION


@pytest.mark.parametrize("version", ["4.0.1", "3.9.1", "latest", "../kafka"])
def test_a_version_without_a_lock_is_refused_with_those_that_have_one(version: str) -> None:
    known = ", ".join(kafka_versions())
    with pytest.raises(ConfigurationError, match=f"not known; choose one of {re.escape(known)}"):
        kafka_release(version)


@pytest.mark.parametrize(
    ("spark", "connector"), [("4.0.5", "4.0.0"), ("4.1.4", "4.1.1"), ("4.2.1", "4.2.0")]
)
def test_the_lock_for_spark_names_what_spark_lacks_and_nothing_that_it_has(
    spark: str, connector: str
) -> None:
    locked = locked_jars(spark_connector(spark))

    assert f"spark-sql-kafka-0-10_2.13-{connector}.jar" in locked
    assert sorted(name.rpartition("-")[0] for name in locked) == [
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    ]


def test_a_spark_without_a_locked_connector_is_told_which_have_one() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"for Spark 4\.3\.0 is known; known are 4\.0\.0 for Spark 4\.0, .*4\.2\.0 for Spark "
        r"4\.2\. Use pyspark 4\.2, or name .*spark\.jars=",
    ):
        spark_connector("4.3.0")


@pytest.mark.parametrize(
    "line",
    [
        "a.jar",
        f"{DIGEST} a.jar",
        f"{DIGEST[1:]}  a.jar",
        f"{'G' * 64}  a.jar",
        f"{DIGEST}  ../a.jar",
        f"{DIGEST}  a.txt",
    ],
)
def test_a_malformed_line_of_the_lock_is_named(line: str) -> None:
    with pytest.raises(ConfigurationError, match=r"line 2 .* expected 'sha256  name\.jar'"):
        parse_lock(f"{DIGEST}  b.jar\n{line}\n")


def test_a_jar_cannot_be_locked_twice() -> None:
    with pytest.raises(ConfigurationError, match=r"line 2 .* names b.jar again"):
        parse_lock(f"{DIGEST}  b.jar\n{DIGEST}  b.jar\n")


def test_missing_cut_and_changed_jars_are_damaged_and_sound_ones_are_not(tmp_path: Path) -> None:
    content = b"a jar"
    locked = dict.fromkeys(
        ["sound.jar", "cut.jar", "changed.jar", "missing.jar"], hashlib.sha256(content).hexdigest()
    )
    (tmp_path / "sound.jar").write_bytes(content)
    (tmp_path / "cut.jar").write_bytes(content[:-1])
    (tmp_path / "changed.jar").write_bytes(b"A jar")

    assert damaged_jars(tmp_path, locked) == ["cut.jar", "changed.jar", "missing.jar"]


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path))

    assert cache_directory() == tmp_path
