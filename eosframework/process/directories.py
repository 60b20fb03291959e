"""Directories of the current user, and files that only their owner may access.

Access is independent of the umask. Stores, logs of brokers and state of servers contain users' data
and passwords. A directory that other users may not enter also protects files that libraries and
child processes create in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from eosframework.errors import ConfigurationError

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
    _close(directory)


def opener(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=opener)`; only the owner may access a new one."""
    return os.open(path, flags, FILE_MODE)


def _close(path: Path) -> None:
    """Remove the access of group and others to a file or directory of this process's user."""
    found = path.stat()
    if found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX and found.st_mode & UMASK:
        with suppress(PermissionError):
            path.chmod(stat.S_IMODE(found.st_mode) & ~UMASK)


def user_directory(of_platform: Callable[..., Path], instead: str) -> Path:
    """Return the directory that a platform gives the user for this program.

    Args:
        of_platform: a function of platformdirs.
        instead: what to do if there is none, for the message.

    Raises:
        ConfigurationError: HOME is not set, and the user has no entry among the system's users.
    """
    try:
        return of_platform("eosframework")
    except RuntimeError as error:
        raise _no_home(instead) from error


def expanded(path: Path, instead: str) -> Path:
    """Return an absolute path in which `~` is replaced.

    Raises:
        ConfigurationError: as `user_directory`.
    """
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise _no_home(instead) from error


def _no_home(instead: str) -> ConfigurationError:
    return ConfigurationError(
        f"this user has no home directory (HOME is not set, and the system's list of users has no "
        f"entry); {instead}"
    )
