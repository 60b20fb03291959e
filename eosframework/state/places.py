"""Where the stores of a task are: a directory per slot, which one process holds at a time.

    {directory}/{application}/{task}/{slot}

A slot is a worker's instance name, so that a restarted worker finds its own stores again. A process
holds a place by an advisory lock on a file in it, which the kernel drops when the process dies.
What another slot left behind is adopted by renaming it: the lock goes with the file. A place that
is held (by a process that stands still, or by a second worker under the same name) is left alone.
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
from eosframework.process.private_files import DIRECTORY_MODE, FILE_MODE, make_directory

LOCK = "eos.lock"

COPY = "eos.copy"
"""A file of this name says that the stores are a copy, whose task runs elsewhere."""

LOCK_ATTEMPTS = 3
"""Whoever only looks whether a place is held holds it himself for an instant."""

LOCK_PAUSE_SECONDS = 0.005

_NOT_A_SLOT = "+"
"""In no instance name, so that what bears it is nobody's own place."""

_DISCARDED = f"{_NOT_A_SLOT}discarded"

_DATA = (".log", ".sst")


def application_directory(settings: StateSettings, application: str) -> Path:
    """Return where the stores of an application are on this machine.

    Raises:
        ConfigurationError: the application's name leads elsewhere.
    """
    refuse_path("application", application)
    chosen = settings.directory or user_state_path("eosframework") / "stores"
    return chosen.expanduser().absolute() / application


@dataclass(slots=True)
class Place:
    """A directory that this process holds until `release`."""

    path: Path
    _handle: int

    @classmethod
    def hold(cls, path: Path) -> Self | None:
        """Take a directory; None: it does not exist, or somebody else holds it."""
        with suppress(FileNotFoundError, NotADirectoryError):
            handle = os.open(path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
            with suppress(FileNotFoundError):
                # It may have been renamed, or deleted, before it was locked.
                if _lock(handle) and os.path.samestat(os.fstat(handle), (path / LOCK).stat()):
                    return cls(path, handle)
            os.close(handle)
        return None

    def rename(self, path: Path) -> None:
        """Move the directory; it stays held."""
        self.path.rename(path)
        self.path = path

    def empty(self) -> None:
        """Delete what is in the directory; a crash on the way leaves all of it or nothing."""
        aside = self.path.with_name(f"{self.path.name}{_DISCARDED}")
        _delete(aside)
        path, handle = self.path, self._handle
        self.path.rename(aside)
        self.path, self._handle = path, _new(path)
        os.close(handle)
        _delete(aside)

    def release(self) -> None:
        """Let others take the directory."""
        os.close(self._handle)

    def note(self, written_at: float | None) -> None:
        """Leave word when the stores here were last written; None: they are about to be.

        Closing touches files, so their times tell only of stores that were not closed.
        """
        os.ftruncate(self._handle, 0)
        if written_at is not None:
            # A full disk does not take it; then the files' times have to do.
            with suppress(OSError):
                os.pwrite(self._handle, b"%.6f" % written_at, 0)

    def mark_copy(self) -> None:
        """Say that the stores here are a copy."""
        # A full disk does not take it; the copy is then shown as what the task left here.
        with suppress(OSError):
            (self.path / COPY).touch(FILE_MODE)

    def unmark_copy(self) -> None:
        """Say that the stores here are those of a task of this process."""
        with suppress(OSError):
            (self.path / COPY).unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the directory and give it up."""
        aside = self.path.with_name(f"{self.path.name}{_DISCARDED}")
        _delete(aside)
        self.path.rename(aside)
        os.close(self._handle)
        _delete(aside)


def take(task: Path, slot: str) -> Place:
    """Hold a place for a slot's stores: the one written last that nobody holds, else a new one.

    Between workers of one machine a task's stores thus go along with the task.

    Args:
        task: the task's directory.
        slot: who asks.

    Raises:
        StateUnwritable: the directory cannot be made or written.
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


def take_own(task: Path, slot: str) -> Place:
    """Hold the place that a slot's own stores are in, or will be.

    Args:
        task: the task's directory.
        slot: who asks.

    Raises:
        StateUnwritable: the directory cannot be made or written.
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
        f"no directory for stores can be had in {task}: {error.strerror}. Make it writable, "
        f"or set state.directory to another local disk"
    )


@dataclass(frozen=True, slots=True)
class Found:
    """Stores of a task on this machine.

    Args:
        task: whose they are.
        path: their directory.
        held: by a process, probably the task's worker.
        written_at: seconds since the epoch of the last write to a file there.
        size_bytes: of the files.
        is_copy: its task runs elsewhere, or did when this was written last.
    """

    task: str
    path: Path
    held: bool
    written_at: float
    size_bytes: int
    is_copy: bool = False


def found(application: Path) -> list[Found]:
    """Return the stores that are in an application's directory, by task, the newest first."""
    places = [
        _look(path)
        for task in _directories(application)
        for path in _directories(task)
        if not path.name.endswith(_DISCARDED)
    ]
    return sorted(places, key=lambda place: (place.task, -place.written_at))


def unused(application: Path) -> list[Found]:
    """Return the stores that no process holds although newer ones of their task are there."""
    newest: set[str] = set()
    rest: list[Found] = []
    for place in found(application):
        if place.task in newest and not place.held:
            rest.append(place)
        newest.add(place.task)
    return rest


def remove(place: Found) -> bool:
    """Delete stores unless a process holds them; tell whether they are gone."""
    held = Place.hold(place.path)
    if held is not None:
        held.remove()
    return not place.path.exists()


def _written_last(task: Path, slot: str) -> Place | None:
    free = [place for path in _directories(task) if (place := Place.hold(path)) is not None]
    used = [place for place in free if written_at(place.path) > 0]
    best = max(used, key=lambda p: (written_at(p.path), p.path.name == slot), default=None)
    for place in free:
        if place is not best:
            place.release()
    return best


def _adopt(place: Place, task: Path, slot: str) -> Place:
    for target in _names(task, slot):
        if target == place.path:
            return place
        if (stale := Place.hold(target)) is not None:
            stale.remove()
        if not target.exists():
            place.rename(target)
            return place
    raise AssertionError("there is always another name")


def _hold_new(task: Path, slot: str) -> Place:
    for target in _names(task, slot):
        make_directory(target)
        if (place := Place.hold(target)) is not None:
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
    # What stays because somebody deletes it at the same time is tried again at the next start.
    shutil.rmtree(path, ignore_errors=True)


def _directories(path: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    return []


def _look(path: Path) -> Found:
    is_copy = (path / COPY).exists()
    return Found(path.parent.name, path, _held(path), written_at(path), size_bytes(path), is_copy)


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


def has_data(path: Path) -> bool:
    """Tell whether a directory holds anything but its lock."""
    with os.scandir(path) as entries:
        return any(entry.name not in (LOCK, COPY) for entry in entries)


def written_at(path: Path) -> float:
    """Return the time of the last write to the stores in a directory; 0: there was none."""
    with suppress(OSError, ValueError):
        return float((path / LOCK).read_bytes())
    return max((written for _, written in _files(path, _DATA)), default=0.0)


def size_bytes(path: Path) -> int:
    """Return how much the files of a directory take."""
    return sum(size for size, _ in _files(path, ("",)))


def _files(path: Path, endings: tuple[str, ...]) -> Iterator[tuple[int, float]]:
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            if entry.name.endswith(endings):
                # RocksDB deletes files meanwhile.
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    yield status.st_size, status.st_mtime


def refuse_path(kind: str, name: str) -> None:
    """Refuse a name that leads to another directory than one of its own.

    Raises:
        ConfigurationError: it does.
    """
    if name in (".", "..") or "/" in name or _NOT_A_SLOT in name:
        raise ConfigurationError(
            f"{kind} {name!r} cannot name a directory of stores; give it another name"
        )
