"""Clean environments: an interpreter with a wheel and what it needs, outside the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes.programs import REPOSITORY, Finished

UV = Path(sys.executable).with_name("uv")

KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "EOS_CACHE_DIR", "SSL_CERT_FILE")
"""Variables that programs in such an environment get; none leads back to the repository."""

DOWNLOAD_SECONDS = 1200

RUN_SECONDS = 900
"""Starts of Spark in a new environment take minutes on a busy machine."""


def build(directory: Path) -> tuple[Path, Path]:
    """Build the wheel and the source distribution into a directory, without network."""
    arguments = ("--offline", "--no-build-isolation", "--python", sys.executable)
    _uv("build", *arguments, "--out-dir", str(directory), str(REPOSITORY), scratch=directory)
    [wheel], [source] = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return wheel, source


@dataclass(frozen=True)
class CleanEnvironment:
    """A virtual environment without the repository.

    Args:
        root: of the virtual environment.
        work: an empty directory where its programs run.
    """

    root: Path
    work: Path

    @classmethod
    def make(cls, directory: Path, python: str = sys.executable) -> CleanEnvironment:
        """Make an environment without packages."""
        made = cls(directory / "environment", directory / "work")
        made.work.mkdir(parents=True)
        # The base interpreter: a virtual environment of one would show its packages.
        made._uv("venv", "--python", os.path.realpath(python), str(made.root))
        return made

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def packages(self) -> Path:
        [found] = self.root.glob("lib/python3.*/site-packages")
        return found

    def install_locked(self, wheel: Path) -> None:
        """Install a wheel with the versions of the lock, from uv's cache if it has them."""
        lock = REPOSITORY / "requirements" / "users.lock"
        arguments = ("--python", str(self.python), "--constraints", str(lock), str(wheel))
        try:
            self._uv("pip", "install", "--offline", *arguments)
        except AssertionError:  # the cache was emptied, or never filled
            self._uv("pip", "install", *arguments)

    def install(self, *requirements: str) -> None:
        """Install the newest versions, as a user's pip does."""
        self._uv("pip", "install", "--python", str(self.python), *requirements)

    def run(self, program: str, *arguments: str, **variables: str) -> Finished:
        """Run a program of the environment to its end."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        done = subprocess.run(
            [str(self.root / "bin" / program), *arguments],
            cwd=self.work,
            env=kept | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def eosframework(self, *arguments: str, **variables: str) -> Finished:
        """Run the command line, which must succeed."""
        done = self.run("eosframework", *arguments, **variables)
        assert done.exit_code == 0, (arguments, done.out, done.err)
        return done

    def _uv(self, *arguments: str) -> str:
        # What it builds from source leaves lock files in the temporary directory.
        return _uv(*arguments, scratch=self.work.parent)

    def names(self) -> set[str]:
        """The names of the installed distributions."""
        listed = self._uv(
            "pip", "list", "--quiet", "--format", "freeze", "--python", str(self.python)
        )
        return {line.partition("==")[0].lower() for line in listed.splitlines()}

    def megabytes(self) -> float:
        """The size of what is installed, without byte code: that depends on who compiles."""
        files = (file for file in self.packages.rglob("*") if "__pycache__" not in file.parts)
        return sum(file.stat().st_size for file in files if file.is_file()) / 1_000_000


def _uv(*arguments: str, scratch: Path) -> str:
    done = subprocess.run(
        [str(UV), *arguments],
        cwd=scratch,
        env=os.environ | {"UV_NO_PROGRESS": "1", "UV_SYSTEM_CERTS": "1", "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS,
    )
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout
