"""The directory that holds everything of an embedded server."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from eosframework.errors import ConfigurationError

START_SECONDS = 180.0
"""A server serves within seconds; on a busy machine it takes many times longer, and a process that
ends is not waited for."""

_TAIL_LINES = 15


@contextmanager
def exclusively(data_dir: Path) -> Generator[None]:
    """Let one process at a time start a server on this data; the lock ends with its process.

    Raises:
        ConfigurationError: the directory cannot be written.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock = (data_dir / "lock").open("w")
    except OSError as error:
        raise ConfigurationError(
            f"the data directory {data_dir} cannot be written ({error.strerror}); choose another"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace_file(file: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace the file at once, so that a crash leaves the old one or the new one."""
    unfinished = file.with_name(f"{file.name}.new")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode)
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)


def tail_of(*logs: Path, directory: Path) -> str:
    """Return the last lines of the log written last, and where to read the rest."""
    spoken = [file for file in logs if file.exists() and file.stat().st_size]
    if not spoken:
        return f"it wrote no log in {directory}"
    latest = max(spoken, key=lambda file: file.stat().st_mtime)
    lines = latest.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    return f"the end of {latest}:\n" + "\n".join(f"  {line}" for line in lines)
