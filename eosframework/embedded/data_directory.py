"""The directory with all files of an embedded server."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from eosframework.errors import ConfigurationError
from eosframework.process.private_files import FILE_MODE, make_directory, opener

START_SECONDS = 180.0
"""Default deadline of a start. A server needs a few seconds, on a busy machine many times more; the
wait ends at once if its process ends."""

_TAIL_LINES = 15


@contextmanager
def exclusively(data_dir: Path) -> Generator[None]:
    """Let one process at a time start a server on this data; the lock ends with its process.

    Raises:
        ConfigurationError: the directory cannot be written.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        handle = opener(str(data_dir / "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable(data_dir, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def own_directory(data_dir: Path) -> None:
    """Create a server's directory, readable by its owner only; restrict an existing one.

    Raises:
        ConfigurationError: the directory cannot be created.
    """
    try:
        make_directory(data_dir)
    except OSError as error:
        raise _unwritable(data_dir, error) from error


def _unwritable(data_dir: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"the data directory {data_dir} cannot be written ({error.strerror}); choose another"
    )


def replace_file(file: Path, text: str) -> None:
    """Replace the file atomically, so that a crash leaves the old one or the new one."""
    unfinished = file.with_name(f"{file.name}.new")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(FILE_MODE)
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)


def tail_of(*logs: Path, directory: Path) -> str:
    """Return the last lines of the most recent log, and the path of the log."""
    spoken = [file for file in logs if file.exists() and file.stat().st_size]
    if not spoken:
        return f"it wrote no log in {directory}"
    latest = max(spoken, key=lambda file: file.stat().st_mtime)
    lines = latest.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    return f"the end of {latest}:\n" + "\n".join(f"  {line}" for line in lines)
