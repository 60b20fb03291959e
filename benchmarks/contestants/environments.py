"""Environments of contestants that want other packages than ours, each from a hashed lock."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.contestants.work import Unavailable
from eosframework.embedded.jars import cache_directory


@dataclass(frozen=True)
class LockedEnvironment:
    """A virtual environment in the cache.

    Args:
        name: of the contestant.
        package: its package.
        lock: file beside this one.
    """

    name: str
    package: str
    lock: str

    @property
    def version(self) -> str:
        """The version of the package that the lock has."""
        lines = self.lock_file.read_text(encoding="utf-8").splitlines()
        [line] = [line for line in lines if line.startswith(f"{self.package}==")]
        return line.split()[0].partition("==")[2]

    @property
    def lock_file(self) -> Path:
        return Path(__file__).with_name(self.lock)

    @property
    def python(self) -> Path:
        """The interpreter, once it is installed."""
        return self._home / "bin" / "python"

    def install(self) -> None:
        """Make it, unless it is there; the stamp comes last, so an interrupted one is made again.

        Raises:
            Unavailable: a package cannot be installed.
        """
        if (self._home / "complete").exists():
            return
        print(f"installing {self.name} into {self._home}", file=sys.stderr)
        uv = str(Path(sys.executable).with_name("uv"))
        install = [uv, "pip", "install", "--quiet", "--require-hashes", "-r", str(self.lock_file)]
        make = [uv, "venv", "--quiet", "--clear", "-p", sys.executable, str(self._home)]
        try:
            subprocess.run(make, check=True)
            subprocess.run([*install, "--python", str(self.python)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unavailable(f"{self.name} could not be installed: {error}") from error
        (self._home / "complete").touch()

    @cached_property
    def _home(self) -> Path:
        digest = hashlib.sha256(self.lock_file.read_bytes() + sys.version.encode()).hexdigest()
        return cache_directory() / f"{self.lock.removesuffix('.lock')}-{digest[:12]}"
