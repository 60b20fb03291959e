"""Labels in a database: the task that it belongs to, and each store's changelog and position.

A label is written in the same batch as the data, so it always matches the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import orjson
from pydantic import TypeAdapter, ValidationError

from eosframework.processing.stores.state_ports import Changes, Reached, StoreIdentity

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
