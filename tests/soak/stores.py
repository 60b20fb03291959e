"""Damage to the files of stores, and the remedy that the message of a damaged store names."""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KINDS = ("*.sst", "*.log", "MANIFEST-*", "CURRENT")
MANNERS = ("flipped", "cut", "deleted")
_LOCK = "eos.lock"
_TO_REMOVE = re.compile(r"the stores in (\S+) cannot be read: .*Remove that directory")


def damage_a_store(hosts: list[Path], rng: random.Random) -> str | None:
    """Damage one file of stores that no process holds; return the damage.

    Args:
        hosts: state homes of the workers.

    Returns:
        None: no process left stores behind.
    """
    for directory in rng.sample(found := _directories(hosts), len(found)):
        with _held(directory) as free:
            files = _files(directory, rng) if free else []
            if files:
                return _damage(rng.choice(files), rng)
    return None


def remove_as_told(log: str) -> Path | None:
    """Remove the directory that a worker's last message says to remove; return it.

    A directory that another process has taken meanwhile is left to that process.
    """
    named = _TO_REMOVE.findall(log)
    if not named:
        return None
    directory = Path(named[-1])
    with _held(directory) as free:
        if free:
            shutil.rmtree(directory)
            return directory
    return None


def _directories(hosts: list[Path]) -> list[Path]:
    return sorted(
        lock.parent for host in hosts for lock in host.glob(f"eosframework/stores/*/*/*/{_LOCK}")
    )


def _files(directory: Path, rng: random.Random) -> list[Path]:
    """Return files of one kind: of a kind that the directory has."""
    for kind in rng.sample(KINDS, len(KINDS)):
        if files := [file for file in sorted(directory.glob(kind)) if file.stat().st_size]:
            return files
    return []


def _damage(file: Path, rng: random.Random) -> str:
    manner, size = rng.choice(MANNERS), file.stat().st_size
    match manner:
        case "flipped":
            content = bytearray(file.read_bytes())
            content[rng.randrange(size)] ^= 1 << rng.randrange(8)
            file.write_bytes(content)
        case "cut":
            os.truncate(file, rng.randrange(size))
        case _:
            file.unlink()
    return f"{manner}: {'/'.join(file.parts[-3:])} of {size} bytes"


@contextmanager
def _held(directory: Path) -> Iterator[bool]:
    """Hold a directory as a worker does; False: a process holds it, or it is gone."""
    try:
        handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
