"""Damage to stores reaches what no process holds, and the remedy removes what it names."""

from __future__ import annotations

import fcntl
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.stores import damage_a_store, remove_as_told

CONTENT = bytes(range(100))


@pytest.fixture
def store(tmp_path: Path) -> Callable[[str], Path]:
    def make(slot: str) -> Path:
        directory = tmp_path / "host" / "eosframework" / "stores" / "app" / "part-0" / slot
        directory.mkdir(parents=True)
        (directory / "eos.lock").touch()
        for name in ("000001.sst", "000002.log", "MANIFEST-000001", "CURRENT", "LOG"):
            (directory / name).write_bytes(CONTENT)
        return directory

    return make


def damaged(directory: Path) -> list[str]:
    kept = [path.name for path in directory.iterdir() if path.read_bytes() == CONTENT]
    return sorted({"000001.sst", "000002.log", "MANIFEST-000001", "CURRENT"} - set(kept))


def test_one_file_of_a_store_that_no_process_holds_is_damaged(
    store: Callable[[str], Path], tmp_path: Path
) -> None:
    held, free = store("held"), store("free")
    with (held / "eos.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = damage_a_store([tmp_path / "host"], random.Random(1))
    assert damaged(held) == []
    [file] = damaged(free)
    assert f"part-0/free/{file}" in str(told)


def test_where_every_store_is_held_nothing_is_damaged(
    store: Callable[[str], Path], tmp_path: Path
) -> None:
    held = store("held")
    with (held / "eos.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert damage_a_store([tmp_path / "host"], random.Random(1)) is None
    assert damaged(held) == []


def test_the_directory_that_the_message_names_is_removed(store: Callable[[str], Path]) -> None:
    broken, other = store("broken"), store("other")
    told = (
        f"error: the stores in {broken} cannot be read: Corruption: block checksum mismatch. Remove"
        f" that directory and start again: they are rebuilt from their changelogs"
    )
    assert remove_as_told(told) == broken
    assert not broken.exists()
    assert other.exists()
    assert remove_as_told("error: no broker answered") is None
