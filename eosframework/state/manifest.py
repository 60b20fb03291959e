"""Detection of a truncated RocksDB manifest.

The manifest lists the files of a database. A flush appends to it and then deletes the write-ahead
log whose entries are in files now. RocksDB accepts a manifest that lost its end as an older one;
the entries of that log are then missing in the middle of the history. So each write also stores the
manifest's size. RocksDB also stops at a record whose damaged length reaches beyond the end of the
file. A killed process leaves no such record, so records are checked before the database is opened.

Labels in a database: the task that it belongs to, and each store's changelog and position.
A label is written in the same batch as the data, so it always matches the data.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import TypeAdapter, ValidationError

from eosframework.engine.stores.state_ports import Changes, Reached, StoreIdentity

LAYOUT = 1
"""Version of the files' layout; files of another version are discarded."""

TASK = b"task"

STREAM_TIME = b"stream time"
"""Key of the task's stream time in milliseconds, as digits."""

REACHED = b"reached"
"""Key of the task's last transaction that all stores have, as JSON."""


class _Label:
    __slots__ = ()

    def encode(self) -> bytes:
        """Return the bytes that `decode` reads."""
        return orjson.dumps(self)

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Return the label in `content`.

        Raises:
            ValueError: it is not a label.
        """
        reader = _READERS.get(cls) or _READERS.setdefault(cls, TypeAdapter(cls))
        try:
            return reader.validate_json(content, strict=True)
        except ValidationError as error:
            raise ValueError(f"{content[:200]!r} is not a label of a store") from error


@dataclass(frozen=True, slots=True)
class TaskLabel(_Label):
    """The task that a database belongs to."""

    application: str
    task: str
    partitions: int
    layout: int = LAYOUT

    def difference(self, wanted: TaskLabel) -> str | None:
        """Return the differences from the wanted label as text; None: there are none."""
        return _difference(asdict(self), asdict(wanted))


@dataclass(frozen=True, slots=True)
class StoreLabel(_Label):
    """The changelog that a store belongs to, and its position in it.

    Args:
        changelog: topic id of the changelog.
        schema_version: version of the entries' format.
        position: next offset of the changelog to apply.
        written_at: time of the last write, in seconds since the epoch.
    """

    changelog: str
    schema_version: int
    position: int
    written_at: float

    def difference(self, wanted: StoreIdentity) -> str | None:
        """Return the differences from the wanted label as text; None: there are none."""
        names = ("changelog", "schema_version")
        return _difference(
            {name: getattr(self, name) for name in names},
            {name: getattr(wanted, name) for name in names},
        )


def store_key(name: str) -> bytes:
    """Return the key of a store's label."""
    return b"store " + name.encode()


def decoded_time(content: bytes | None) -> int | None:
    """Return the stream time in the content of `STREAM_TIME`.

    Raises:
        ValueError: the content is not a number.
    """
    return None if content is None else int(content)


def decoded_reached(content: bytes | None) -> Reached | None:
    """Return the value in the content of `REACHED`.

    Raises:
        ValueError: the content is another one.
    """
    if content is None:
        return None
    reader = _READERS.get(Reached) or _READERS.setdefault(Reached, TypeAdapter(Reached))
    return reader.validate_json(content, strict=True)


def require_positions(changes: Mapping[str, Changes], positions: Mapping[str, int]) -> None:
    """Refuse changes without a position, which would look like the remains of a crash.

    Raises:
        ValueError: a store is changed and has no position.
    """
    if unplaced := changes.keys() - positions.keys():
        raise ValueError(f"changes of {sorted(unplaced)} have no position")


_READERS: dict[Any, TypeAdapter[Any]] = {}


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    parts = [
        f"{name} is {found[name]!r} instead of {value!r}"
        for name, value in wanted.items()
        if found[name] != value
    ]
    return "; ".join(parts) or None


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
