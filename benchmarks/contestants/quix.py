"""Quix Streams in an environment of its own."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from benchmarks.contestants.work import Unavailable, Work
from benchmarks.processes import Command
from eosframework.embedded.jars import cache_directory

LOCK = Path(__file__).with_name("quix.lock")


class QuixStreams:
    """Quix Streams from its own locked environment: it wants other versions than ours.

    Args:
        name: what it goes by in tables.
        environment: variables on top of the work's.
    """

    share = 0.2

    def __init__(
        self, name: str = "Quix Streams", environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._environment = dict(environment or {})

    def prepare(self) -> str:
        if not (self._home / "complete").exists():
            _install(self._home)
        return locked_version()

    def command(self, work: Work) -> Command:
        state = {"BENCH_STATE_DIRECTORY": str(work.directory / "quix")}
        arguments = [str(self._python), "-m", "benchmarks.contestants.quix_program"]
        return Command(arguments, work.environment() | state | self._environment)

    @cached_property
    def _home(self) -> Path:
        digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
        return cache_directory() / f"quix-{digest[:12]}"

    @property
    def _python(self) -> Path:
        return self._home / "bin" / "python"


def locked_version() -> str:
    """Return the version that the lock has."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("quixstreams==")).split()[0][13:]


def _install(home: Path) -> None:
    """Make the environment; the stamp comes last, so an interrupted one is made again."""
    print(f"installing Quix Streams into {home}", file=sys.stderr)
    uv = str(Path(sys.executable).with_name("uv"))
    install = [uv, "pip", "install", "--quiet", "--require-hashes", "-r", str(LOCK)]
    try:
        subprocess.run([uv, "venv", "--quiet", "--clear", "-p", sys.executable, home], check=True)
        subprocess.run([*install, "--python", str(home / "bin" / "python")], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"Quix Streams could not be installed: {error}") from error
    (home / "complete").touch()
