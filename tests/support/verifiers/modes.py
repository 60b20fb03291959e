"""Which files and directories others than their owner may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_umask() -> Iterator[None]:
    """Let what is made be open to everybody, unless who makes it says otherwise."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(directory: Path) -> list[str]:
    """Return what lies in a directory, at any depth, and is open to its group or to others."""
    found: list[str] = []
    for path in directory.rglob("*"):
        bits = path.lstat().st_mode & 0o077
        if bits and not path.is_symlink():
            found.append(f"{path.relative_to(directory)}: {bits:o}")
    return found
