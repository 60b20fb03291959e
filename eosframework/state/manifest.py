"""How much of a database's manifest there must be.

The manifest lists the files of a database; a flush adds to it and then deletes the log of writes
that is in files now. RocksDB takes a manifest that lost its end for an older one: what was in that
log is then missing, in the middle of the history. So each write tells how long the manifest was.
A record that seems to reach behind the end, because its length was changed, counts as such an end
as well; a process that was killed leaves none, so the records are walked through before.
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
"""By name of a manifest, its size in bytes."""

_NOTED = TypeAdapter(Sizes)


def sizes(directory: Path) -> Sizes:
    """Return the manifests in a directory."""
    found: Sizes = {}
    for path in directory.glob("MANIFEST-*"):
        # A process that has the database open may be done with it.
        with suppress(FileNotFoundError):
            found[path.name] = path.stat().st_size
    return found


def shortened(noted: bytes | None, there: Sizes) -> str | None:
    """Return what is missing of a manifest, as a reason for a log.

    Args:
        noted: what the last write told.
        there: what was found before the database was opened, which begins a new manifest.
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
    """Return what is wrong with the records of the current manifest, as a reason for a log.

    Only their lengths are looked at; RocksDB finds a record with other content by its checksum
    (`db/log_format.h`: checksum, length, type, in blocks of 32 KiB).
    """
    try:
        path = directory / (directory / "CURRENT").read_text(encoding="ascii").strip()
        content = path.read_bytes()
    except (OSError, UnicodeDecodeError):
        return None  # nothing was begun, or RocksDB says so
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
        """Return what is to be noted; None: what was noted last still holds."""
        try:
            size = os.stat(self._path).st_size
        except FileNotFoundError:
            self._path, size = self._current(), 0
        if size == self._noted:
            return None
        self._noted = size
        return orjson.dumps({os.path.basename(self._path): size})

    def _current(self) -> str:
        # Renamed into its place when RocksDB begins another manifest: always there, and whole.
        name = (self._directory / "CURRENT").read_text(encoding="ascii").strip()
        return str(self._directory / name)
