"""Detection of a truncated RocksDB manifest.

The manifest lists the files of a database. A flush appends to it and then deletes the write-ahead
log whose entries are in files now. RocksDB accepts a manifest that lost its end as an older one;
the entries of that log are then missing in the middle of the history. So each write also stores the
manifest's size. RocksDB also stops at a record whose damaged length reaches beyond the end of the
file. A killed process leaves no such record, so records are checked before the database is opened.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

KEY = b"manifest"

_BLOCK_BYTES = 32 * 2**10
_HEAD = struct.Struct("<4xHB")

Sizes = dict[str, int]
"""Sizes of manifests in bytes, by file name."""

_NOTED = TypeAdapter(Sizes)


def sizes(directory: Path) -> Sizes:
    """Return the sizes of the manifests in a directory."""
    found: Sizes = {}
    for path in directory.glob("MANIFEST-*"):
        # A process that has the database open may delete it.
        with suppress(FileNotFoundError):
            found[path.name] = path.stat().st_size
    return found


def shortened(noted: bytes | None, there: Sizes) -> str | None:
    """Return a message if a manifest is shorter than it was at the last write, else None.

    Args:
        noted: the entry that the last write stored.
        there: sizes before the database was opened, which begins a new manifest.
    """
    try:
        told = _NOTED.validate_json(noted or b"{}", strict=True)
    except ValidationError:
        return "what was noted of its manifest cannot be read"
    for name, size in told.items():
        if there.get(name, size) < size:
            return f"{name} has {there[name]} bytes of at least {size}"
    return None


def torn(directory: Path) -> str | None:
    """Return a message if the current manifest ends within a record, else None.

    Only the lengths of records are checked; RocksDB checks their contents by checksums
    (`db/log_format.h`: checksum, length, type, in blocks of 32 KiB).
    """
    try:
        path = directory / (directory / "CURRENT").read_text(encoding="ascii").strip()
        content = path.read_bytes()
    except (OSError, UnicodeDecodeError):
        return None  # there is no database, or RocksDB reports the error
    at = 0
    while at < len(content):
        room = min(_BLOCK_BYTES - at % _BLOCK_BYTES, len(content) - at)
        length, kind = _HEAD.unpack_from(content, at) if room >= _HEAD.size else (0, 0)
        if not length and not kind:
            if any(content[at : at + room]):
                return f"{path.name} ends within a record"
            at += room
        elif _HEAD.size + length > room:
            return f"{path.name} ends within a record"
        else:
            at += _HEAD.size + length
    return None


class Manifest:
    """The manifest of an open database.

    Args:
        directory: of the database.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = self._current()
        self._noted: int | None = None

    def news(self) -> bytes | None:
        """Return the entry to write if the size changed since the last call, else None."""
        try:
            size = os.stat(self._path).st_size
        except FileNotFoundError:
            self._path, size = self._current(), 0
        if size == self._noted:
            return None
        self._noted = size
        return orjson.dumps({os.path.basename(self._path): size})

    def _current(self) -> str:
        # RocksDB replaces CURRENT by renaming, so it always exists and is complete.
        name = (self._directory / "CURRENT").read_text(encoding="ascii").strip()
        return str(self._directory / name)
