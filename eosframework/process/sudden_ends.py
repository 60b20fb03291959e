"""The number of times in a row that an instance ended without a word.

A process that the kernel kills can write nothing, and one that a library aborts only its threads'
stacks (`show_stacks`). A file next to the instance's lock counts its starts, and a proper end, with
an error or without, removes it. So the next process of the same instance on this machine knows how
many before it ended suddenly:

    1. a process starts and writes the number of earlier sudden ends + 1
    2a. it ends properly and removes the file, or
    2b. it ends suddenly and the file stays
    3. the next process of this instance reads the number

Without a place for the file, as on a full disk, sudden ends are not counted.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from eosframework.process.directories import FILE_MODE

SUSPECT = 2
"""A single sudden end nearly always has another cause than the input."""

MOST_DIGITS = 10


def show_stacks() -> None:
    """Write the stacks of all threads to stderr if a native library ends this process."""
    with suppress(RuntimeError, OSError):  # stderr is closed, or no file
        faulthandler.enable()


class SuddenEnds:
    """The sudden ends of one instance; its lock must be held.

    Args:
        path: of the file; the directory exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def count(self) -> int:
        """The number of processes of this instance that ended suddenly, one after the other."""
        try:
            content = self._path.read_bytes()
        except OSError:
            return 0
        return int(content) if len(content) < MOST_DIGITS and content.isdigit() else 0

    @property
    def are_suspect(self) -> bool:
        """True if the input may be their cause."""
        return self.count >= SUSPECT

    @contextmanager
    def counted(self) -> Generator[None]:
        """Count this process as one that ended suddenly, unless the block ends."""
        with suppress(OSError):
            self._write(self.count + 1)
        try:
            yield
        finally:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _write(self, number: int) -> None:
        # In place of the old content at once: a process may be killed here, too.
        new = self._path.with_suffix(".new")
        descriptor = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "w") as file:
            file.write(str(number))
        new.replace(self._path)
