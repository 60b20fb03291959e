"""Files and directories that are for their owner alone, whatever the umask.

Stores, logs of brokers and records of servers hold what users wrote, and passwords. A directory
that no other user may enter protects what libraries and child processes make in it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
UMASK = 0o077
"""For child processes that make files of their own."""


def make_directory(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for its owner alone.

    One that is there is closed to others if this process owns it, and it is no place that several
    users share (with the sticky bit).

    Raises:
        OSError: it cannot be made.
    """
    missing = [directory]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for path in reversed(missing):
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    close(directory)


def opener(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=opener)`; a new one is for its owner alone."""
    return os.open(path, flags, FILE_MODE)


def close(path: Path) -> None:
    """Take a file or directory of this process's user from the group and from others."""
    found = path.stat()
    if found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX and found.st_mode & UMASK:
        with suppress(PermissionError):
            path.chmod(stat.S_IMODE(found.st_mode) & ~UMASK)
