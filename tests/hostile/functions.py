"""Models and functions of the topologies that hostile records go through."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any, NoReturn

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pydantic import BaseModel

from eosframework import Record

NOON = 1_700_000_000_000
"""Event time of records that state none, in milliseconds since the epoch."""

LARGE = 3_000_000
"""Characters of an output that no topic here takes."""

CONTROLS = "\x1b]0;owned\x07\x1b[2J\x9b1m\r"
"""What sets a terminal's title, rings its bell, clears it and overwrites a line."""

_failed: set[int] = set()


class Item(BaseModel):
    id: int
    text: str = ""
    amount: float = 0.0
    at: datetime | None = None
    more: Any = None


class Kept(BaseModel):
    place: int
    id: int | None = None
    text: str | None = None
    amount: float | None = None
    body: dict[str, Any] | None = None
    headers: str | None = None


SHAPE: dict[str, Any] = {}
"""A JSON Schema of the application's own, which allows everything."""

_FIELD = descriptor_pb2.FieldDescriptorProto
MESSAGE_FILE = descriptor_pb2.FileDescriptorProto(
    name="tests_hostile.proto",
    syntax="proto3",
    message_type=[
        descriptor_pb2.DescriptorProto(
            name="Message",
            field=[
                _FIELD(name="more", number=1, type=_FIELD.TYPE_MESSAGE, type_name=".Message"),
                _FIELD(name="text", number=2, type=_FIELD.TYPE_STRING),
            ],
        )
    ],
)
"""`message Message {Message more = 1; string text = 2}`."""

_pool = descriptor_pool.DescriptorPool()
_pool.Add(MESSAGE_FILE)
Message: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName("Message"))


class Unspeakable(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise ValueError("there is none")


def place(record: Record) -> Record:
    """Return where a record lies instead of its value."""
    return record.replace(value=_place(record))


def _place(record: Record) -> dict[str, Any]:
    return {"topic": record.topic, "offset": record.offset}


def act(record: Record) -> Record:
    """Do what the value asks for; else as `place`."""
    match record.value.get("do"):
        case None:
            return place(record)
        case "headers":
            return place(record).replace(headers=record.value["headers"])
        case "time":
            return place(record).replace(timestamp=record.value["time"])
        case "large":
            return record.replace(value={**_place(record), "more": "x" * LARGE})
        case "surrogate":
            return record.replace(value={**_place(record), "more": "\ud800"})
        case "huge number":
            return record.replace(value={**_place(record), "more": 10**5000})
        case "deep":
            return record.replace(value={**_place(record), "more": _deep(2000)})
        case "nothing":
            return None  # pyright: ignore[reportReturnType]
        case other:
            _raise(other)


def _deep(levels: int) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


def _raise(wanted: str) -> NoReturn:
    match wanted:
        case "raise surrogate":
            raise ValueError("a lone \ud800 in a text")
        case "raise nul":
            raise ValueError("a \0 in a text")
        case "raise escape":
            raise ValueError(f"{CONTROLS} in a text")
        case "raise long":
            raise ValueError("x" * LARGE)
        case "raise unspeakable":
            raise Unspeakable
        case "exit":
            sys.exit("a function ends the process")
        case "stop":
            raise StopIteration
        case "recursion":
            _raise(wanted)
        case "memory":
            raise MemoryError
        case _:
            raise ValueError(f"do not know how to {wanted!r:.60}")


def moment(value: Any) -> Any:
    """Return the event time that a value states."""
    return value.get("t", NOON)


def is_sent(value: Any) -> bool:
    return "topic" in value


def chosen(record: Record) -> Any:
    """Return the topic that a value asks for; `own:` stands for the application's prefix."""
    name = record.value["topic"]
    own = record.topic.removesuffix(".act")
    if not isinstance(name, str):
        return name
    return name.replace("own:", f"{own}.").replace("own-", f"{own}-")


def fail_again(value: Any) -> Any:
    """Refuse a record that says so, each time or the first time."""
    if value.get("do") == "fail once" and value["id"] not in _failed:
        _failed.add(value["id"])
        raise ValueError("not now")
    if "do" in value and value["do"] != "fail once":
        _raise(value["do"])
    return {"id": value["id"]}


def group(record: Record) -> Any:
    return record.value["k"]


def nothing() -> list[int]:
    return []


def collect(ids: list[int], value: Any) -> list[int]:
    if "do" in value:
        _raise(value["do"])
    return [*ids, value["id"]]


def both(earlier: list[int], later: list[int]) -> list[int]:
    return [*earlier, *later]


def pair(left: Any, right: Any) -> Any:
    return {"left": left and left["id"], "right": right and right["id"]}


def look(value: Any, row: Any) -> Any:
    return {"id": value["id"], "row": row}


def row(record: Record) -> Any:
    """Return a row with everything that a record has."""
    value = record.value
    if "do" in value:
        _raise(value["do"])
    return {
        "place": record.offset,
        "id": value.get("id"),
        "text": value.get("text"),
        "amount": value.get("amount"),
        "body": value.get("body"),
        "headers": repr(record.headers),
    }
