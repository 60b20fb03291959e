"""Prometheus' own programs, from the path or out of Debian's package, which is not installed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.processes.places import shared_folder

_FOLDER = shared_folder() / f"eosframework-promtool-{os.getuid()}"


def promtool() -> Path:
    """Return where promtool is; it is unpacked once where it is missing."""
    return _program("promtool")


def prometheus() -> Path:
    """Return where the server is; it is unpacked once where it is missing."""
    return _program("prometheus")


def _program(name: str) -> Path:
    if found := shutil.which(name):
        return Path(found)
    _FOLDER.mkdir(exist_ok=True)
    program = _FOLDER / name
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests that run side by side unpack it once
        if not program.exists():
            _unpack(program)
    return program


def _unpack(program: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip(f"there is no {program.name}, and no apt-get to get Debian's prometheus with")
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        if not _got(folder):
            subprocess.run(["apt-get", "--quiet", "update"], capture_output=True, check=False)
            if not _got(folder):
                pytest.skip(
                    f"there is no {program.name}, and Debian's prometheus could not be downloaded"
                )
        [package] = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(package), folder], check=True)
        for unpacked in Path(folder, "usr/bin").iterdir():
            unpacked.rename(_FOLDER / unpacked.name)


def _got(folder: str) -> bool:
    command = ["apt-get", "--quiet", "download", "prometheus"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0
