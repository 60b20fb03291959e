"""What pgoutput writes is read as it was emitted."""

from __future__ import annotations

import struct

import orjson
from hypothesis import given
from hypothesis import strategies as st

from eosframework.postgres.database.outbox.outbox_slot import Begun, Emitted, Ended, events
from eosframework.postgres.outbox.sharding import lane_of

ID = "0b0f9d0e-5a5c-4a4e-9d38-3f5b2e2f7a11"


def begin(place: int) -> bytes:
    return struct.pack(">cQqI", b"B", place, 0, 7)


def commit(place: int, end: int) -> bytes:
    return struct.pack(">cBQQq", b"C", 0, place, end, 0)


def message(prefix: str, content: bytes) -> bytes:
    head = struct.pack(">cBQ", b"M", 1, 5) + prefix.encode() + b"\0"
    return head + struct.pack(">I", len(content)) + content


def emitted(key: bytes | None, value: bytes | None) -> bytes:
    facts = {
        "id": ID,
        "topic": "orders",
        "key": None if key is None else len(key),
        "value": None if value is None else len(value),
        "headers": {"a": "b"},
        "at": 17,
    }
    content = orjson.dumps(facts) + b"\n" + (key or b"") + (value or b"")
    return message("eosframework.outbox", content)


@given(st.none() | st.binary(max_size=50), st.none() | st.binary(max_size=50))
def test_a_message_is_read_as_it_was_emitted(key: bytes | None, value: bytes | None) -> None:
    found = list(events([begin(10), emitted(key, value), commit(10, 20)]))
    assert found[0] == Begun(10)
    assert found[2] == Ended(20)
    read = found[1]
    assert isinstance(read, Emitted)
    assert read.output[:4] == ("orders", value, key, -1)
    assert read.output[6:] == (17, [("a", b"b"), ("__eos.outbox.id", ID)])
    assert (read.within, read.lane) == (1, lane_of(key, 1))


def test_messages_of_others_are_passed_over_and_not_counted() -> None:
    changes = [begin(1), message("other", b"x"), emitted(b"k", b"v"), emitted(b"k", b"w")]
    found = [event for event in events(changes) if isinstance(event, Emitted)]
    assert [event.within for event in found] == [1, 2]
