"""Directories of stores: one per task and slot, locked by one process at a time.

    {directory}/{application}/{task}/{slot}

A slot is a worker's instance name, so a restarted worker finds its own stores again. A process
locks a directory by an advisory lock on a file in it, which the kernel releases when the process
ends. A directory that another slot left is adopted by renaming it, and the lock moves with the
file. A locked directory (of a suspended process, or of a second worker with the same name) is not
touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

from platformdirs import user_state_path

from eosframework.config import StateSettings
from eosframework.errors import ConfigurationError, StateUnwritable
from eosframework.process.directories import (
    DIRECTORY_MODE,
    FILE_MODE,
    expanded,
    make_directory,
    user_directory,
)

LOCK = "eos.lock"

COPY = "eos.copy"
"""A file of this name marks the stores as a standby copy, whose task runs elsewhere."""

LOCK_ATTEMPTS = 3
"""Attempts to take a lock, since a process that only checks a lock holds it for an instant."""

LOCK_PAUSE_SECONDS = 0.005

_NOT_A_SLOT = "+"
"""Not allowed in instance names, so a directory whose name contains it is no worker's own."""

_DISCARDED = f"{_NOT_A_SLOT}discarded"

_DATA = (".log", ".sst")

_INSTEAD = "set state.directory to a directory on a local disk"


def application_directory(settings: StateSettings, application: str) -> Path:
    """Return the directory of an application's stores on this machine.

    Raises:
        ConfigurationError: the application's name cannot be the name of a directory.
    """
    refuse_path("application", application)
    chosen = settings.directory or user_directory(user_state_path, _INSTEAD) / "stores"
    return expanded(chosen, _INSTEAD) / application


@dataclass(slots=True)
class StoreDirectory:
    """A directory that this process has locked until `release`."""

    path: Path
    _handle: int

    @classmethod
    def hold(cls, path: Path) -> Self | None:
        """Lock a directory; None: it does not exist, or another process holds it."""
        with suppress(FileNotFoundError, NotADirectoryError):
            handle = os.open(path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
            with suppress(FileNotFoundError):
                # 1. this process opens the lock file  2. another adopts the directory under its own
                # name, or deletes it, and releases the lock  3. this one locks a file that is no
                # longer at `path`.
                if _lock(handle) and os.path.samestat(os.fstat(handle), (path / LOCK).stat()):
                    return cls(path, handle)
            os.close(handle)
        return None

    def rename(self, path: Path) -> None:
        """Rename the directory; it stays locked."""
        self.path.rename(path)
        self.path = path

    def empty(self) -> None:
        """Delete the directory's content; a crash leaves all of it or nothing."""
        aside = self.path.with_name(f"{self.path.name}{_DISCARDED}")
        _delete(aside)
        path, handle = self.path, self._handle
        # 1. the directory is renamed, still locked  2. a new one is created and locked  3. the old
        # lock is released. Another process finds a locked directory, or between 1 and 2 none: then
        # it takes the name, and `mkdir` in `_new` fails.
        self.path.rename(aside)
        self.path, self._handle = path, _new(path)
        os.close(handle)
        _delete(aside)

    def release(self) -> None:
        """Release the lock."""
        os.close(self._handle)

    def note(self, written_at: float | None) -> None:
        """Record the time of the last write, in seconds since the epoch; None: writes follow.

        Closing a database touches its files, so their times are only used if it was not closed.
        """
        os.ftruncate(self._handle, 0)
        if written_at is not None:
            # On a full disk this fails, and the files' times are used.
            with suppress(OSError):
                os.pwrite(self._handle, b"%.6f" % written_at, 0)

    def mark_copy(self) -> None:
        """Mark the stores as a standby copy."""
        # On a full disk this fails, and the copy is listed as the task's former stores.
        with suppress(OSError):
            (self.path / COPY).touch(FILE_MODE)

    def unmark_copy(self) -> None:
        """Mark the stores as those of a task of this process."""
        with suppress(OSError):
            (self.path / COPY).unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the directory and release the lock."""
        aside = self.path.with_name(f"{self.path.name}{_DISCARDED}")
        _delete(aside)
        self.path.rename(aside)
        os.close(self._handle)
        _delete(aside)


def take(task: Path, slot: str) -> StoreDirectory:
    """Lock the unlocked directory of a task that was written last, or create one.

    So a task's stores move with the task between the workers of one machine.

    Args:
        task: the task's directory.
        slot: the worker's instance name, which the directory gets.

    Raises:
        StateUnwritable: the directory cannot be created or written.
    """
    try:
        make_directory(task)
        _clean(task)
        best = _written_last(task, slot)
        place = _hold_new(task, slot) if best is None else _adopt(best, task, slot)
        place.note(None)
        return place
    except OSError as error:
        raise _no_place(task, error) from error


def take_own(task: Path, slot: str) -> StoreDirectory:
    """Lock a slot's own directory of a task, or create it.

    Args:
        task: the task's directory.
        slot: the worker's instance name.

    Raises:
        StateUnwritable: the directory cannot be created or written.
    """
    try:
        make_directory(task)
        place = _hold_new(task, slot)
        place.note(None)
        return place
    except OSError as error:
        raise _no_place(task, error) from error


def _no_place(task: Path, error: OSError) -> StateUnwritable:
    return StateUnwritable(
        f"no directory for stores can be created in {task}: {error.strerror}. Make it writable, "
        f"or set state.directory to another local disk"
    )


@dataclass(frozen=True, slots=True)
class FoundStores:
    """Stores of a task on this machine.

    Args:
        task: `sub_topology-partition`.
        path: the stores' directory.
        held: locked by a process, probably the task's worker.
        written_at: time of the last write, in seconds since the epoch.
        size_bytes: of the files.
        is_copy: a standby copy: when it was last written, the task ran elsewhere.
    """

    task: str
    path: Path
    held: bool
    written_at: float
    size_bytes: int
    is_copy: bool = False


def list_stores(application: Path) -> list[FoundStores]:
    """Return the stores in an application's directory, by task, the newest first."""
    places = [
        _look(path)
        for task in _directories(application)
        for path in _directories(task)
        if not path.name.endswith(_DISCARDED)
    ]
    return sorted(places, key=lambda place: (place.task, -place.written_at))


def unused(application: Path) -> list[FoundStores]:
    """Return the unlocked stores of which there are newer ones of the same task."""
    newest: set[str] = set()
    rest: list[FoundStores] = []
    for place in list_stores(application):
        if place.task in newest and not place.held:
            rest.append(place)
        newest.add(place.task)
    return rest


def remove(place: FoundStores) -> bool:
    """Delete stores unless a process holds them; return whether they are gone."""
    held = StoreDirectory.hold(place.path)
    if held is not None:
        held.remove()
    return not place.path.exists()


def _written_last(task: Path, slot: str) -> StoreDirectory | None:
    free = [
        place for path in _directories(task) if (place := StoreDirectory.hold(path)) is not None
    ]
    used = [place for place in free if written_at(place.path) > 0]
    best = max(used, key=lambda p: (written_at(p.path), p.path.name == slot), default=None)
    for place in free:
        if place is not best:
            place.release()
    return best


def _adopt(place: StoreDirectory, task: Path, slot: str) -> StoreDirectory:
    # `_written_last` keeps the lock of the directory that it chose, so of two workers that look at
    # once neither adopts the other's.
    for target in _names(task, slot):
        if target == place.path:
            return place
        if (stale := StoreDirectory.hold(target)) is not None:
            stale.remove()
        if not target.exists():
            place.rename(target)
            return place
    raise AssertionError("there is always another name")


def _hold_new(task: Path, slot: str) -> StoreDirectory:
    for target in _names(task, slot):
        make_directory(target)
        if (place := StoreDirectory.hold(target)) is not None:
            return place
    raise AssertionError("there is always another name")


def _names(task: Path, slot: str) -> Iterator[Path]:
    yield task / slot
    yield from (task / f"{slot}{_NOT_A_SLOT}{number}" for number in count(1))


def _new(path: Path) -> int:
    path.mkdir(mode=DIRECTORY_MODE)
    handle = os.open(path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _clean(task: Path) -> None:
    for path in _directories(task):
        if path.name.endswith(_DISCARDED):
            _delete(path)


def _delete(path: Path) -> None:
    # If another process deletes the same files, remains are deleted at the next start.
    shutil.rmtree(path, ignore_errors=True)


def _directories(path: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    return []


def _look(path: Path) -> FoundStores:
    is_copy = (path / COPY).exists()
    return FoundStores(
        path.parent.name, path, _held(path), written_at(path), size_bytes(path), is_copy
    )


def _held(path: Path) -> bool:
    with suppress(FileNotFoundError):
        handle = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return not _lock(handle, attempts=1)
        finally:
            os.close(handle)
    return False


def _lock(handle: int, *, attempts: int = LOCK_ATTEMPTS) -> bool:
    for attempt in range(attempts):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if attempt + 1 < attempts:
            time.sleep(LOCK_PAUSE_SECONDS)
    return False


def has_database(path: Path) -> bool:
    """Return whether a directory contains files of a database."""
    with os.scandir(path) as entries:
        return any(entry.name not in (LOCK, COPY) for entry in entries)


def written_at(path: Path) -> float:
    """Return the time of the last write in a directory, in seconds since the epoch; 0: never."""
    with suppress(OSError, ValueError):
        return float((path / LOCK).read_bytes())
    return max((written for _, written in _files(path, _DATA)), default=0.0)


def size_bytes(path: Path) -> int:
    """Return the size of the files in a directory."""
    return sum(size for size, _ in _files(path, ("",)))


def _files(path: Path, endings: tuple[str, ...]) -> Iterator[tuple[int, float]]:
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            if entry.name.endswith(endings):
                # RocksDB may delete files at the same time.
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    yield status.st_size, status.st_mtime


def refuse_path(kind: str, name: str) -> None:
    """Refuse a name that cannot be the name of a directory.

    Raises:
        ConfigurationError: it contains a separator, or is relative.
    """
    if name in (".", "..") or "/" in name or _NOT_A_SLOT in name:
        raise ConfigurationError(
            f"{kind} {name!r} cannot name a directory of stores; give it another name"
        )
