"""The directory with all files of an embedded server."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from eosframework.errors import ConfigurationError
from eosframework.process.private_files import FILE_MODE, make_directory, opener

START_SECONDS = 180.0
"""Default deadline of a start. A server needs a few seconds, on a busy machine many times more; the
wait ends at once if its process ends."""

_TAIL_LINES = 15

T = TypeVar("T")


@contextmanager
def exclusively(
    directory: Path, title: str = "data directory", hint: str = "choose another"
) -> Generator[None]:
    """Let one process at a time change a directory; the lock ends with its process.

    Args:
        directory: is created if it is missing.
        title: of the directory, for messages.
        hint: the next step if it cannot be written.

    Raises:
        ConfigurationError: the directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = opener(str(directory / "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigurationError(
            f"the {title} {directory} cannot be written ({error.strerror}); {hint}"
        ) from error
    # The file stays when the lock is released. If it were deleted: 1. A holds it, B waits for it
    # 2. A deletes and releases it  3. B has the deleted file, C creates and locks another.
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
        raise ConfigurationError(
            f"the data directory {data_dir} cannot be written ({error.strerror}); choose another"
        ) from error


def load_state(file: Path, adapter: TypeAdapter[T], what: str) -> T | None:
    """Return the state of a server as recorded in its data directory; None if there is none.

    Args:
        file: of the state, directly in the data directory.
        adapter: of the state's type.
        what: kind of server, for messages.

    Raises:
        ConfigurationError: the state cannot be read.
    """
    try:
        return adapter.validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{file} does not describe a {what} ({type(error).__name__}); "
            f"remove the data directory {file.parent}, or choose another with --data-dir"
        ) from None  # pydantic's error would show passwords


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
