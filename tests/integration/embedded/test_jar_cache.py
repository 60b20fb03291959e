from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eosframework.embedded.jars import (
    KAFKA_VERSION,
    damaged_jars,
    fetched,
    kafka_release,
    locked_jars,
    spark_connector,
)
from eosframework.errors import ComponentFailed

KAFKA = kafka_release(KAFKA_VERSION)
SMALL_JARS = ["jspecify-1.0.0.jar", "slf4j-api-1.7.36.jar"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own with the jars of the shared one, which nothing here can damage."""
    home = fetched(KAFKA).parent
    shutil.copytree(home, tmp_path / home.name)
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path))
    return tmp_path / home.name


def test_damaged_and_missing_jars_are_fetched_again(cache: Path) -> None:
    cut, missing = (cache / "jars" / name for name in SMALL_JARS)
    cut.write_bytes(cut.read_bytes()[:100])
    missing.unlink()

    assert damaged_jars(fetched(KAFKA), locked_jars(KAFKA)) == []


def test_a_jar_changed_in_place_is_noticed_although_its_size_is_the_same(cache: Path) -> None:
    assert fetched(KAFKA) == cache / "jars"
    jar = cache / "jars" / SMALL_JARS[0]
    jar.write_bytes(bytes(jar.stat().st_size))

    assert damaged_jars(fetched(KAFKA), locked_jars(KAFKA)) == []


def test_nothing_but_the_locked_jars_is_on_the_class_path(cache: Path) -> None:
    (cache / "jars" / "stranger.jar").write_bytes(b"")

    assert {file.name for file in fetched(KAFKA).iterdir()} == set(locked_jars(KAFKA))


def test_a_download_that_was_cut_short_is_repaired(cache: Path) -> None:
    (cache / "jars" / SMALL_JARS[0]).unlink()
    for pom in (cache / "repository").rglob("*.pom"):
        pom.write_bytes(b"<project>")

    assert damaged_jars(fetched(KAFKA), locked_jars(KAFKA)) == []


def test_a_fetched_jar_that_differs_from_the_lock_is_refused(cache: Path) -> None:
    changed = replace(KAFKA, name="kafka-changed")
    cache.rename(changed.home)
    wrong = {**locked_jars(KAFKA), SMALL_JARS[0]: "0" * 64}
    lines = (f"{digest}  {name}\n" for name, digest in wrong.items())
    (changed.home / "first-fetched.lock").write_text("".join(lines), encoding="ascii")

    with pytest.raises(ComponentFailed, match=f"{SMALL_JARS[0]} has the sha256 .* lock says 0000"):
        fetched(changed)


def test_processes_that_start_together_fill_the_cache_once(cache: Path) -> None:
    (cache / "jars" / SMALL_JARS[0]).unlink()
    program = (
        "from eosframework.embedded.jars import KAFKA_VERSION, fetched, kafka_release; "
        "fetched(kafka_release(KAFKA_VERSION))"
    )

    together = [
        subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, env=os.environ)
        for _ in range(3)
    ]
    said = b"".join(process.communicate()[1] for process in together)

    assert [process.returncode for process in together] == [0, 0, 0]
    assert said.count(b"fetching") == 1
    assert damaged_jars(cache / "jars", locked_jars(KAFKA)) == []


def test_of_a_spark_without_a_lock_what_was_fetched_first_is_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = spark_connector("4.0.0")
    unlocked = replace(known, name="spark-kafka-unlocked")
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path))

    jars = fetched(unlocked)
    assert locked_jars(unlocked) == locked_jars(known)

    damaged = next(jars.glob("commons-pool2-*.jar"))
    damaged.write_bytes(b"")
    assert damaged_jars(fetched(unlocked), locked_jars(known)) == []
