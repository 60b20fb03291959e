"""Processes that end without a word are counted until one ends with one."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.process.signals import SuddenEnds
from eosframework.process.supervisor import ChildProcess
from tests.support.processes.programs import framework_command

CRASHING = """\
import os, signal
os.kill(os.getpid(), signal.{signal})
"""


def run(path: Path, how: str) -> int:
    """Run a process of the instance to its end."""

    def work() -> int:
        with SuddenEnds(path).counted():
            if how == "raises":
                raise SystemExit(1)
            if how != "ends":
                faulthandler.disable()  # pytest's prints all threads of a child that is to end so.
                os.kill(os.getpid(), getattr(signal, how))
        return 0

    return ChildProcess(work).wait()


def test_only_sudden_ends_in_a_row_count(tmp_path: Path) -> None:
    path = tmp_path / "host.0.ends"
    counts: list[int] = []
    for how in ("SIGKILL", "SIGABRT", "SIGSEGV", "raises", "SIGKILL", "ends"):
        run(path, how)
        counts.append(SuddenEnds(path).count)
    assert counts == [1, 2, 3, 0, 1, 0]
    assert not list(tmp_path.iterdir())


def test_two_in_a_row_are_suspect(tmp_path: Path) -> None:
    ends = SuddenEnds(tmp_path / "host.0.ends")
    found: list[bool] = [ends.are_suspect]
    for _ in range(2):
        run(tmp_path / "host.0.ends", "SIGKILL")
        found.append(ends.are_suspect)
    assert found == [False, False, True]


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV"])
def test_a_process_that_a_library_ends_says_what_it_was_doing(tmp_path: Path, name: str) -> None:
    """As glibc does that finds damaged memory while a native library gives some back."""
    (tmp_path / "crashing.py").write_text(CRASHING.format(signal=name))
    ended = subprocess.run(
        framework_command("lint", "crashing:app"), cwd=tmp_path, capture_output=True, text=True
    )
    assert -ended.returncode == getattr(signal, name)
    assert "Fatal Python error" in ended.stderr
    assert "crashing.py" in ended.stderr


@given(st.binary(max_size=20) | st.integers(0, 10**30).map(lambda n: str(n).encode()))
def test_whatever_is_in_the_file_is_a_count(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "host.0.ends")
        path.write_bytes(content)
        assert 0 <= SuddenEnds(path).count < 10**10


def test_without_a_place_for_the_file_a_process_runs(tmp_path: Path) -> None:
    ends = SuddenEnds(tmp_path / "missing" / "host.0.ends")
    with ends.counted():
        assert ends.count == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_is_a_proper_end(tmp_path: Path, error: type[BaseException]) -> None:
    ends = SuddenEnds(tmp_path / "host.0.ends")
    counts: list[int] = []

    def work() -> None:
        with ends.counted():
            counts.append(ends.count)
            raise error

    with pytest.raises(error):
        work()
    assert [*counts, ends.count] == [1, 0]
