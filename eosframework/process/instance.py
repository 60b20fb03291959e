"""Instance names of workers (`group.instance.id`), which are the same after a restart.

A static group member that rejoins under its name gets its partitions back at once; under a new
name it waits until the old member's session expires. So the name must be the same after a crash,
and no two running workers may share one. By default it consists of the host's name and the lowest
slot that no other worker of the application holds on this host. A slot is an advisory lock on a
file, which the kernel releases when the process ends in any way.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_state_path

from eosframework.config import WorkerSettings
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.process.directories import FILE_MODE, expanded, make_directory, user_directory
from eosframework.process.signals import SuddenEnds

MOST_SLOTS = 1024

_INSTEAD = (
    "set worker.instance_directory to a directory of this user, the same for all workers of this "
    "host"
)


@contextmanager
def own_instance(application: str, settings: WorkerSettings) -> Generator[str]:
    """Hold an instance name for the length of the block.

    Args:
        application: names are unique within it.
        settings: their `instance` is the name; None: take the lowest free slot of this host.

    Raises:
        StartRefused: another worker on this host holds the wanted name.
        ConfigurationError: the directory of the names cannot be written.
    """
    wanted, directory = settings.instance, _directory(application, settings)
    try:
        make_directory(directory)
    except OSError as error:
        raise ConfigurationError(
            f"the directory {directory}, which holds the names of workers on this host, cannot be "
            f"made: {error.strerror}; {_INSTEAD}"
        ) from error
    if wanted is not None:
        handle = _lock(directory / f"{wanted}.lock")
        if handle is None:
            raise StartRefused(
                f"instance {wanted!r} of application {application!r} runs on this host already; "
                f"stop it first, or give this one another name: --set worker.instance=NAME"
            )
        name = wanted
    else:
        name, handle = _lowest_free_slot(directory)
    try:
        yield name
    finally:
        os.close(handle)


def sudden_ends(application: str, instance: str, settings: WorkerSettings) -> SuddenEnds:
    """Return the count of sudden ends of an instance that is held with `own_instance`."""
    return SuddenEnds(_directory(application, settings) / f"{instance}.ends")


def _directory(application: str, settings: WorkerSettings) -> Path:
    chosen = settings.instance_directory
    chosen = user_directory(user_state_path, _INSTEAD) if chosen is None else chosen
    return expanded(chosen, _INSTEAD) / application


def _lowest_free_slot(directory: Path) -> tuple[str, int]:
    host = re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname()) or "host"
    for slot in range(MOST_SLOTS):
        name = f"{host}.{slot}"
        if (handle := _lock(directory / f"{name}.lock")) is not None:
            return name, handle
    raise StartRefused(f"{MOST_SLOTS} workers run on this host already; locks are in {directory}")


def _lock(path: Path) -> int | None:
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
