"""Models, schemas, a message class and functions for topologies with a schema registry."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

FIELDS: list[dict[str, Any]] = [
    {"name": "carrier", "type": "string"},
    {"name": "minutes", "type": "int"},
]

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": FIELDS,
}
"""What producers wrote at first."""

GROWN = {**FLIGHT, "fields": [*FIELDS, {"name": "gate", "type": "string", "default": "none"}]}
"""With a field that has a default."""

BROKEN = {**FLIGHT, "fields": [*FIELDS, {"name": "tail", "type": "string"}]}
"""With a field that nobody wrote and that has no default."""

LATE: dict[str, Any] = {**FLIGHT, "name": "Late"}
LATE_BROKEN: dict[str, Any] = {**BROKEN, "name": "Late"}


class Flight(BaseModel):
    carrier: str
    minutes: int
    gate: str = "none"


def is_late(flight: Any) -> bool:
    return (flight["minutes"] if isinstance(flight, dict) else flight.minutes) > 15


def carrier(record: Any) -> str:
    value = record.value
    return value["carrier"] if isinstance(value, dict) else value.carrier


def as_message(flight: Flight) -> Any:
    return message_class()(carrier=flight.carrier, minutes=flight.minutes)


def latest(_: Any, value: Any) -> Any:
    return value


def message_class() -> Any:
    """Make the class that protoc would make of `message Flight {string carrier; int32 minutes}`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    label = field.LABEL_OPTIONAL
    file = descriptor_pb2.FileDescriptorProto(
        name="tests_air.proto",
        package="air",
        syntax="proto3",
        message_type=[
            descriptor_pb2.DescriptorProto(
                name="Flight",
                field=[
                    field(name="carrier", number=1, type=field.TYPE_STRING, label=label),
                    field(name="minutes", number=2, type=field.TYPE_INT32, label=label),
                ],
            )
        ],
    )
    pool = descriptor_pool.Default()
    pool.Add(file) if not _knows(pool, file.name) else None
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("air.Flight"))


def _knows(pool: Any, name: str) -> bool:
    try:
        return pool.FindFileByName(name) is not None
    except KeyError:
        return False


def __getattr__(name: str) -> Any:
    if name == "FlightMessage":
        return message_class()
    raise AttributeError(name)
