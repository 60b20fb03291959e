"""What is made is for its owner alone, whatever the umask."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from eosframework.config import WorkerSettings
from eosframework.embedded.kafka_cluster import Layout, save_layout
from eosframework.embedded.postgres_server import Record, mark_initialized, save_record
from eosframework.process.directories import make_directory
from eosframework.process.instance import own_instance
from eosframework.state.store_directories import take, take_own
from tests.support.verifiers.modes import open_to_others, open_umask


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    with open_umask():
        yield


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directories_that_are_missing_are_closed_and_an_own_one_that_was_open(
    tmp_path: Path,
) -> None:
    theirs, own = tmp_path / "theirs", tmp_path / "own"
    for directory in (theirs, own):
        directory.mkdir(0o755)
    make_directory(theirs / "a" / "b")
    make_directory(own)
    assert mode(theirs) == 0o755
    assert [mode(p) for p in (theirs / "a", theirs / "a" / "b", own)] == [0o700] * 3


def test_a_place_that_users_share_stays_theirs(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    make_directory(tmp_path)
    assert mode(tmp_path) == 0o1777


def test_stores_instances_and_records_of_servers_are_for_their_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    take(tmp_path / "stores" / "app" / "task-0", "host.0").mark_copy()
    own = take_own(tmp_path / "stores" / "app" / "task-1", "host.0")
    own.empty()
    with own_instance("app", WorkerSettings()):
        pass
    for name in ("kafka", "postgres"):
        make_directory(tmp_path / name)
    save_layout(tmp_path / "kafka", Layout(cluster_id="c", ports=(1,), controller_ports=(2,)))
    save_record(tmp_path / "postgres", Record(port=1, password="secret"))
    mark_initialized(tmp_path / "postgres")
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(made) >= 8
    assert open_to_others(tmp_path) == []
