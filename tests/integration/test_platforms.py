"""Other platforms, as far as they can be imitated here (tests/support/processes/other_platform)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.applications.pipeline import read_committed, wait_until
from tests.support.processes.commands import Cluster
from tests.support.processes.programs import REPOSITORY
from tests.support.processes.waiting import PATIENCE_SECONDS

WORDCOUNT = REPOSITORY / "examples" / "wordcount" / "wordcount.py"


def command(platform: str, *arguments: str) -> list[str]:
    module = "tests.support.processes.other_platform"
    return [sys.executable, "-m", module, platform, *arguments]


def run(directory: Path, platform: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(platform, *arguments),
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.parametrize(
    "arguments", [("--version",), ("lint", "app.py"), ("run-worker", "app.py")]
)
def test_windows_is_refused_in_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, "win32", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: eosframework needs fork")
    assert "WSL 2" in line


@pytest.mark.exhaustive
def test_without_prctl_and_proc_workers_run_and_end_with_their_supervisor(
    kafka: Any, unique_name: Any, tmp_path: Path
) -> None:
    name = unique_name("mac")
    lines, counts = f"{name}.lines", f"{name}.counts"
    text = WORDCOUNT.read_text().replace('"wordcount"', f'"{name}"')
    (tmp_path / "app.py").write_text(
        text.replace('"lines"', f'"{lines}"').replace('"counts"', f'"{counts}"')
    )
    cluster = Cluster(kafka.bootstrap_servers)
    cluster.create(lines, counts)
    cluster.feed(lines, *[b"to be or not to be"] * 50)
    settings = ("--bootstrap-server", kafka.bootstrap_servers)
    assert run(tmp_path, "darwin", "apply", "app.py", *settings).returncode == 0

    with (tmp_path / "log").open("wb") as log:
        supervisor = subprocess.Popen(
            command("darwin", "run-worker", "app.py", "--processes", "2", *settings),
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            stderr=log,
        )
        try:
            wait_until(lambda: cluster.committed(name, lines) == 50, "the commit")
            children = children_of(supervisor.pid)
            assert len(children) == 2
        finally:
            supervisor.send_signal(signal.SIGKILL)
            supervisor.wait(60)
    wait_until(lambda: not any(map(is_alive, children)), "the end of the orphans")
    done = run(tmp_path, "darwin", "run-worker", "app.py", "--until-caught-up", *settings)
    assert done.returncode == 0, done.stderr
    counted = {
        r.key(): json.loads(r.value() or b"")
        for r in read_committed(kafka.bootstrap_servers, counts)
    }
    assert counted == {b"to": 100, b"be": 100, b"or": 50, b"not": 50}


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
