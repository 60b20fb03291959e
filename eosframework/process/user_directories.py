"""Default directories of the current user, who may have no home, as in many containers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eosframework.errors import ConfigurationError


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
