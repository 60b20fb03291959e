"""Debian's packages, installed where a test needs them and this process is root's."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eosframework.errors import ConfigurationError
from tests.support.processes.places import shared_folder

_LOCK = shared_folder() / "eosframework-apt.lock"
_POLICY = Path("/usr/sbin/policy-rc.d")


def require_programs(programs: dict[str, str]) -> None:
    """Install what is missing; no service that comes along is started.

    Args:
        programs: Debian's package by the name of a program that it brings.

    Raises:
        ConfigurationError: it is missing and cannot be installed.
    """
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests that run side by side install it once
        missing = sorted({package for program, package in programs.items() if not _has(program)})
        if not missing:
            return
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise ConfigurationError(
                f"{', '.join(missing)} is not installed, and only root on Debian can install it"
            )
        with _no_service_started():
            _install(missing)


def _has(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


@contextmanager
def _no_service_started() -> Iterator[None]:
    """Debian starts what it installs unless this file says no; one that is there is left alone."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


def _install(packages: list[str]) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "--quiet", *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise ConfigurationError(
            f"{', '.join(packages)} could not be installed: {done.stderr.strip()[-500:]}"
        )
