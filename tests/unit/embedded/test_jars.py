from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from eosframework.embedded.jars import cache_directory, damaged_jars, locked_jars, parse_lock
from eosframework.errors import ConfigurationError

DIGEST = "0" * 64


def test_the_lock_names_kafka_and_a_binding_for_its_log() -> None:
    names = set(locked_jars())

    assert {"kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar"} <= names
    assert any(name.startswith("log4j-slf4j-impl-") for name in names)


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
