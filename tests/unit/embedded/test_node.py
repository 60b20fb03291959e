from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eosframework.embedded.node import Node, node_marker


def broker(directory: Path) -> Node:
    return Node(1, 1, directory, lambda _: [])


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like the node in `tmp_path`."""
    process = subprocess.Popen(
        [sys.executable, "-c", "input()", node_marker(tmp_path)], stdin=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


def test_a_node_is_known_by_what_its_process_says(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "pid").write_text(f"{sleeper.pid}\n")

    assert broker(tmp_path).pid == sleeper.pid


@pytest.mark.parametrize(
    "content",
    [f"{os.getpid()}\n", "4194305\n", "-1\n", "", "no pid\n"],
    ids=["ours", "nobody's", "negative", "empty", "text"],
)
def test_a_stale_pid_is_not_believed_and_nothing_of_others_is_killed(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "pid").write_text(content)
    node = broker(tmp_path)

    assert not node.running
    node.kill()
    node.stop()

    assert not (tmp_path / "pid").exists()


def test_a_node_of_another_directory_is_another_node(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "pid").write_text(f"{sleeper.pid}\n")

    broker(other).kill()

    assert sleeper.poll() is None


def test_a_node_that_does_not_stop_by_the_deadline_is_killed(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    node = broker(tmp_path)
    (tmp_path / "pid").write_text(f"{sleeper.pid}\n")

    node.suspend()
    node.await_end(deadline_seconds=0.05)

    assert not node.running


def test_a_suspended_node_can_be_stopped(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    node = broker(tmp_path)
    (tmp_path / "pid").write_text(f"{sleeper.pid}\n")

    node.suspend()
    node.stop(deadline_seconds=60)

    assert not node.running
