from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eosframework.embedded.jars import (
    KAFKA_VERSION,
    JarSet,
    damaged_jars,
    fetched,
    kafka_release,
    locked_jars,
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


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_download_that_was_cut_short_is_repaired(cache: Path) -> None:
    (cache / "jars" / SMALL_JARS[0]).unlink()
    for pom in (cache / "repository").rglob("*.pom"):
        pom.write_bytes(b"<project>")

    assert damaged_jars(fetched(KAFKA), locked_jars(KAFKA)) == []


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


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JarSet:
    """A set of one jar, which nothing locks."""
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path))
    return JarSet("JSpecify", "small", "org.jspecify:jspecify:1.0.0")


def test_of_a_set_without_a_lock_what_was_fetched_first_is_the_lock(small: JarSet) -> None:
    directory = fetched(small)
    assert locked_jars(small) == {SMALL_JARS[0]: locked_jars(KAFKA)[SMALL_JARS[0]]}

    (directory / SMALL_JARS[0]).write_bytes(b"")
    assert damaged_jars(fetched(small), locked_jars(small)) == []


def test_a_jar_that_differs_from_its_lock_is_refused_by_name(small: JarSet) -> None:
    directory = fetched(small)
    (directory / SMALL_JARS[0]).unlink()
    (small.home / "first-fetched.lock").write_text(f"{'0' * 64}  {SMALL_JARS[0]}\n")

    with pytest.raises(ComponentFailed) as refused:
        fetched(small)

    said = str(refused.value)
    assert re.search(rf"{SMALL_JARS[0]} has the sha256 \w{{64}}, but the lock says 0{{64}}", said)
    assert said.endswith("Check which repository or proxy answers as Maven Central")
    assert list(directory.iterdir()) == []
