"""Files and directories that only their owner may access, independent of the umask.

Stores, logs of brokers and state of servers contain users' data and passwords. A directory that
other users may not enter also protects files that libraries and child processes create in it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
UMASK = 0o077
"""Umask of child processes that create files."""


def make_directory(directory: Path) -> None:
    """Create a directory and its missing parents, accessible to their owner only.

    An existing directory is closed to others if this process's user owns it, unless it is shared
    by several users (sticky bit).

    Raises:
        OSError: it cannot be created.
    """
    missing = [directory]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for path in reversed(missing):
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    close(directory)


def opener(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=opener)`; only the owner may access a new one."""
    return os.open(path, flags, FILE_MODE)


def close(path: Path) -> None:
    """Remove the access of group and others to a file or directory of this process's user."""
    found = path.stat()
    if found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX and found.st_mode & UMASK:
        with suppress(PermissionError):
            path.chmod(stat.S_IMODE(found.st_mode) & ~UMASK)
