"""What a database says about itself: for what it was made, and how far each store is.

It is written with the data, in the same batch, so that the two never part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import orjson
from pydantic import TypeAdapter, ValidationError

from eosframework.processing.stores.state_ports import Changes, StoreIdentity

LAYOUT = 1
"""Of the files; another one is not read."""

TASK = b"task"

STREAM_TIME = b"stream time"
"""Under it lies the task's stream time in milliseconds, as digits."""


@dataclass(frozen=True, slots=True)
class TaskLabel:
    """Whose stores a database holds."""

    application: str
    task: str
    partitions: int
    layout: int = LAYOUT

    def encode(self) -> bytes:
        """Return the bytes that `decode` reads."""
        return orjson.dumps(self)

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Return what `content` says.

        Raises:
            ValueError: it is not a label.
        """
        return _made_of(cls, content)

    def difference(self, wanted: TaskLabel) -> str | None:
        """Return in what this differs from what is wanted, as a reason for a log."""
        return _difference(asdict(self), asdict(wanted))


@dataclass(frozen=True, slots=True)
class StoreLabel:
    """For what a store was made, and how far it is.

    Args:
        changelog: the id of its changelog topic.
        schema_version: of the format of its entries.
        position: next offset of the changelog to apply.
        written_at: seconds since the epoch.
    """

    changelog: str
    schema_version: int
    position: int
    written_at: float

    def encode(self) -> bytes:
        """Return the bytes that `decode` reads."""
        return orjson.dumps(self)

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Return what `content` says.

        Raises:
            ValueError: it is not a label.
        """
        return _made_of(cls, content)

    def difference(self, wanted: StoreIdentity) -> str | None:
        """Return in what this differs from what is wanted, as a reason for a log."""
        names = ("changelog", "schema_version")
        return _difference(
            {name: getattr(self, name) for name in names},
            {name: getattr(wanted, name) for name in names},
        )


def store_key(name: str) -> bytes:
    """Return the key under which a store's label is."""
    return b"store " + name.encode()


def decoded_time(content: bytes | None) -> int | None:
    """Return the stream time that was written under `STREAM_TIME`.

    Raises:
        ValueError: it is none.
    """
    return None if content is None else int(content)


def require_positions(changes: Mapping[str, Changes], positions: Mapping[str, int]) -> None:
    """Refuse content without a position, which nobody could tell from that of a crash.

    Raises:
        ValueError: there is some.
    """
    if unplaced := changes.keys() - positions.keys():
        raise ValueError(f"changes of {sorted(unplaced)} come without a position behind them")


_READERS: dict[Any, TypeAdapter[Any]] = {}


def _made_of(cls: Any, content: bytes) -> Any:
    reader = _READERS.get(cls) or _READERS.setdefault(cls, TypeAdapter(cls))
    try:
        return reader.validate_json(content, strict=True)
    except ValidationError as error:
        raise ValueError(f"{content[:200]!r} is no label of a store") from error


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    parts = [
        f"{name} is {found[name]!r} instead of {value!r}"
        for name, value in wanted.items()
        if found[name] != value
    ]
    return "; ".join(parts) or None
