"""Schemas that others could register, and values that are written with them."""

from __future__ import annotations

import base64
import json
import struct

from tests.hostile.functions import MESSAGE_FILE
from tests.hostile.inputs import ALL, DEAD, OUTPUT, Outcome

MESSAGE = base64.b64encode(MESSAGE_FILE.SerializeToString()).decode()

LIST_OF_ITSELF = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "more", "type": {"type": "array", "items": "Node"}}],
}


def avro_number(number: int) -> bytes:
    """Return a number as Avro writes it."""
    rest, data = number << 1, bytearray()
    while rest > 127:
        data.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*data, rest])


def nested(depth: int) -> bytes:
    """Return lists of themselves."""
    return b"\2" * depth + b"\0" * (depth + 1)


def doubled(times: int) -> dict[str, object]:
    """Return a record with two fields of a record with two fields, and so on."""
    found: object = {"type": "record", "name": "R0", "fields": []}
    for level in range(1, times):
        fields = [{"name": "a", "type": found}, {"name": "b", "type": f"R{level - 1}"}]
        found = {"type": "record", "name": f"R{level}", "fields": fields}
    fields = [{"name": "a", "type": found}, {"name": "b", "type": "boolean"}]
    return {"type": "record", "name": "Root", "fields": fields}


def deep_message(depth: int) -> bytes:
    """Return messages that lie in each other."""
    message = b""
    for _ in range(depth):
        size, length = len(message), bytearray()
        while size > 127:
            length.append(size & 127 | 128)
            size >>= 7
        message = b"\x0a" + bytes([*length, size]) + message
    return b"\0" + message


NULLS = {"type": "array", "items": "null"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 2}
DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
ANYTHING = json.dumps(DRAFT)
PATTERN = {**DRAFT, "properties": {"text": {"pattern": "^(a|a)*$"}}}
ALIKE = {**DRAFT, "uniqueItems": True}

UNKNOWN = 300
"""Schemas that the registry does not have."""

Foreign = tuple[str, str, str | None, bytes, frozenset[Outcome]]

FOREIGN: list[Foreign] = [
    ("avro", "lists of itself", json.dumps(LIST_OF_ITSELF), nested(20), OUTPUT),
    ("avro", "200 lists of itself", json.dumps(LIST_OF_ITSELF), nested(200), OUTPUT),
    ("avro", "20,000 lists of itself", json.dumps(LIST_OF_ITSELF), nested(20_000), DEAD),
    ("avro", "nulls without end", json.dumps(NULLS), avro_number(10**13) + b"\0", DEAD),
    ("avro", "ten nulls", json.dumps(NULLS), avro_number(10) + b"\0", OUTPUT),
    ("avro", "records that double", json.dumps(doubled(30)), b"\1", DEAD),
    (
        "avro",
        "a decimal of a megabyte",
        json.dumps(DECIMAL),
        avro_number(10**6) + bytes(10**6),
        ALL,
    ),
    ("shaped", "a pattern", json.dumps(PATTERN), b'{"text":"%b!"}' % (b"a" * 60), OUTPUT),
    ("shaped", "a deep list", ANYTHING, b"[" * 100_000 + b"]" * 100_000, DEAD),
    ("shaped", "no two alike", json.dumps(ALIKE), b'{"l":[%b{}]}' % (b"{}," * 100_000), OUTPUT),
    ("message", "messages in messages", MESSAGE, deep_message(20_000), DEAD),
    ("message", "90 messages in messages", MESSAGE, deep_message(90), OUTPUT),
    ("message", "a message of many indexes", MESSAGE, b"\xfe\xff\xff\xff\x0f", DEAD),
    *(
        (
            "avro",
            "a schema that is unknown",
            None,
            b"\0" + struct.pack(">I", 2**30 + n) + b"\2",
            DEAD,
        )
        for n in range(UNKNOWN)
    ),
]
"""By lane and name: the schema, the value, and what becomes of it."""
