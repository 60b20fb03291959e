"""The cases: each is one record that once ended a process, or could.

A new case is a line here. `$id` in a value stands for the record's number.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from tests.hostile.foreign_schemas import ANYTHING, FOREIGN, MESSAGE
from tests.hostile.functions import CONTROLS, LARGE, NOON
from tests.hostile.inputs import ALL, DEAD, OUTPUT, Input, Outcome


@dataclass(frozen=True)
class Case:
    """One hostile record.

    Args:
        expected: what becomes of it.
        schema: of the value; see `Input`.
    """

    lane: str
    name: str
    value: bytes | None
    expected: frozenset[Outcome]
    key: bytes | None = b"k"
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: int | None = None
    codec: str = "none"
    schema: str | None = None

    def as_input(self, number: int) -> Input:
        """Return the record with its number."""
        value = self.value and self.value.replace(b"$id", b"%d" % number)
        timestamp = NOON if self.timestamp is None else self.timestamp
        return Input(
            self.lane,
            number,
            self.key,
            value,
            self.headers,
            timestamp,
            self.codec,
            self.expected,
            self.name,
            self.schema,
        )


NOISE = random.Random(1).randbytes(1_047_000)
"""A topic with default limits takes it, and no more than its name in addition."""

EIGHT = b"\0" * 7 + b"\1"

HEALTHY = {
    "raw": Case("raw", "healthy", b"$id", OUTPUT),
    "text": Case("text", "healthy", b"$id", OUTPUT),
    "whole": Case("whole", "healthy", EIGHT, OUTPUT, key=EIGHT),
    "real": Case("real", "healthy", EIGHT, OUTPUT, key=EIGHT),
    "any": Case("any", "healthy", b'{"id":$id}', OUTPUT, key=b'"k"'),
    "item": Case("item", "healthy", b'{"id":$id}', OUTPUT),
    "act": Case("act", "healthy", b'{"id":$id}', OUTPUT),
    "again": Case("again", "healthy", b'{"id":$id}', OUTPUT),
    "window": Case("window", "healthy", b'{"id":$id,"k":"a"}', OUTPUT),
    "session": Case("session", "healthy", b'{"id":$id,"k":"a"}', OUTPUT),
    "left": Case("left", "healthy", b'{"id":$id}', OUTPUT),
    "right": Case("right", "healthy", b'{"id":$id}', OUTPUT),
    "rows": Case("rows", "healthy", b'{"id":$id}', OUTPUT),
    "asks": Case("asks", "healthy", b'{"id":$id}', OUTPUT),
    "avro": Case("avro", "healthy", b"\2", OUTPUT, schema='"long"'),
    "shaped": Case("shaped", "healthy", b'{"id":$id}', OUTPUT, schema=ANYTHING),
    "message": Case("message", "healthy", b"\0\x12\1a", OUTPUT, schema=MESSAGE),
    "kept": Case("kept", "healthy", b'{"id":$id,"text":"t","amount":1.5}', OUTPUT),
}

UNREADABLE = (
    ("a header's name that is no UTF-8", ((b"\xff\xfe", b"1"),)),
    ("a header's name with a NUL", ((b"a\0b", b"1"),)),
    ("a header without a name", ((b"", b""),)),
    ("a header with any bytes", ((b"h", bytes(range(256))),)),
    ("a header without a value", ((b"h", None),)),
    ("many headers", tuple((b"h%d" % n, b"") for n in range(500))),
    ("a large header", ((b"h", b"x" * 300_000),)),
    (
        "forged coordinates",
        ((b"__streams.errors.topic", b"\xff"), (b"__streams.errors.offset", b"9" * 5000)),
    ),
    (
        "forged attempts",
        ((b"__eos.errors.attempts", b"9" * 5000), (b"__eos.errors.due", b"9" * 30)),
    ),
    (
        "a forged form of a dead letter",
        ((b"__eos.errors.form", b"gzip"), (b"__eos.errors.size", b"1" * 5000)),
    ),
    ("a forged receipt", ((b"__eos.receipt", b"1/a/0/b/0/" + b"9" * 5000 + b"/0/1/0/0/1"),)),
    ("a forged trace", ((b"traceparent", b"00-" + b"f" * 32 + b"-\xff"),)),
    ("a forged replay", ((b"__eos.errors.replayed", b"\xff\0"), (b"__eos.errors.step", b"\xff"))),
)
"""Headers that every lane takes, by what is hostile in them."""

BAD_JSON = (
    ("an empty value", b""),
    ("a torn object", b'{"id": $id'),
    ("no UTF-8", b'{"id": $id, "text": "\xff"}'),
    ("an escape that is half a character", b'{"id": $id, "text": "\\ud800"}'),
    ("a million brackets", b"[" * 1_000_000),
    ("a BOM", b'\xef\xbb\xbf{"id": $id}'),
    ("a NUL behind it", b'{"id": $id}\0'),
    ("a word for NaN", b'{"id": $id, "amount": NaN}'),
)

NO_MEMBERS = (("null", b"null"), ("a list", b"[]"), ("a number", b"1" * 400), ("a text", b'""'))
"""JSON in which functions that want an object do not find their way."""

FAILING = (
    "raise surrogate",
    "raise nul",
    "raise escape",
    "raise long",
    "raise unspeakable",
    "exit",
    "stop",
    "recursion",
    "memory",
)
"""What functions do (functions.py)."""

TIMES = (
    ("a negative event time", b"-1"),
    ("an event time behind 2**63", b"%d" % 2**63),
    ("an event time behind the year 9999", b"253402300800000"),
    ("an event time that is a text", b'"soon"'),
    ("an event time that is a float", b"1.5"),
    ("an event time with many digits", b"9" * 4000),
    ("an event time in the year 9999", b"253402300799999"),
)


def cases() -> Iterator[Case]:
    """Yield every case."""
    for healthy in HEALTHY.values():
        for name, headers in UNREADABLE:
            yield replace(healthy, name=name, headers=headers)
    for lane in ("any", "item", "act", "again", "window", "session", "left", "right"):
        yield from _json_cases(lane)
    for lane in ("rows", "asks", "kept"):
        yield from _json_cases(lane)
    # The decoder of this serde reads both.
    lenient = ("an escape that is half a character", "a BOM")
    yield from (case for case in _json_cases("shaped") if case.name not in lenient)
    for lane in ("act", "again", "window", "session", "kept"):
        for what in FAILING:
            value = b'{"id":$id,"k":"a","do":"%b"}' % what.encode()
            yield replace(HEALTHY[lane], name=what, value=value, expected=DEAD)
        for name, value in NO_MEMBERS:
            yield replace(HEALTHY[lane], name=name, value=value, expected=DEAD)
    for lane in ("act", "window", "session", "left", "right"):
        for name, text in TIMES:
            value = b'{"id":$id,"k":"a","t":%b}' % text
            yield replace(HEALTHY[lane], name=name, value=value, expected=DEAD)
    for lane in ("whole", "real"):
        for size in (0, 7, 9, 100):
            yield replace(HEALTHY[lane], name=f"{size} bytes", value=bytes(size), expected=DEAD)
    yield from SINGLES
    for lane, name, schema, value, expected in FOREIGN:
        yield Case(lane, name, value, expected, schema=schema)


def _json_cases(lane: str) -> Iterator[Case]:
    for name, value in BAD_JSON:
        yield replace(HEALTHY[lane], name=name, value=value, expected=DEAD)


def _act(
    name: str, members: bytes, expected: frozenset[Outcome] = DEAD, *, codec: str = "none"
) -> Case:
    value = b'{"id":$id,' + members + b"}"
    return replace(HEALTHY["act"], name=name, value=value, expected=expected, codec=codec)


SINGLES = (
    Case("raw", "a null value", None, OUTPUT),
    Case("raw", "no key", b"", OUTPUT, key=None),
    Case("raw", "a Kafka timestamp of 0", b"", OUTPUT, timestamp=0),
    Case("raw", "no Kafka timestamp", b"", DEAD, timestamp=-1),
    Case("window", "an event time of 0", b'{"id":$id,"k":"a","t":0}', OUTPUT),
    Case("session", "an event time of 0", b'{"id":$id,"k":"a","t":0}', OUTPUT),
    Case("left", "an event time of 0", b'{"id":$id,"t":0}', OUTPUT),
    Case("again", "no Kafka timestamp", b'{"id":$id,"do":"fail once"}', OUTPUT, timestamp=-1),
    # Its event time cannot be compared with a timestamp of its own (worker.max_event_time_ahead).
    Case("window", "no Kafka timestamp", b'{"id":$id,"k":"a"}', DEAD, timestamp=-1),
    Case("text", "a dead letter without a Kafka timestamp", b"\xff", DEAD, timestamp=-1),
    Case("raw", "any bytes", bytes(range(256)), OUTPUT, key=bytes(range(256))),
    *(Case("raw", f"3 MB in {c}", b"x" * LARGE, OUTPUT, codec=c) for c in ("gzip", "zstd", "lz4")),
    Case(
        "left",
        "3 MB in zstd that are late",
        b'{"id":$id,"t":0,"more":"%b"}' % (b"x" * LARGE),
        OUTPUT,
        codec="zstd",
    ),
    # Their dead letters do not fit the topic as they are.
    _act("3 MB in zstd", b'"do":"raise nul","more":"%b"' % (b"x" * LARGE), codec="zstd"),
    Case("any", "3 MB that are no JSON in zstd", b"{" + b" " * LARGE, DEAD, b'"k"', codec="zstd"),
    Case("text", "random bytes", NOISE, DEAD),
    Case("any", "a key of random bytes", b"{", DEAD, key=NOISE),
    Case("text", "a header of random bytes", b"\xff", DEAD, headers=((b"h", NOISE),)),
    Case("text", "control characters", CONTROLS.encode(), OUTPUT, key=CONTROLS.encode()),
    Case("rows", "control characters", b'{"id":$id}', OUTPUT, key=CONTROLS.encode()),
    Case("text", "no UTF-8", b"\xff", DEAD),
    Case("text", "half a character", b"\xed\xa0\x80", DEAD),
    Case("text", "a key that is no UTF-8", b"", DEAD, key=b"\xff"),
    Case("text", "NUL", b"\0", OUTPUT, key=b"\0"),
    Case("real", "NaN", b"\x7f\xf8" + b"\0" * 6, OUTPUT, key=EIGHT),
    Case("real", "an infinite key", EIGHT, OUTPUT, key=b"\x7f\xf0" + b"\0" * 6),
    Case("any", "a deep list", b"[" * 900 + b"]" * 900, DEAD, key=b'"k"'),
    Case("any", "a number beyond all floats", b"1e999", ALL, key=b'"k"'),
    Case("any", "many digits", b"9" * 5000, ALL, key=b'"k"'),
    Case("any", "a key that is no JSON", b"1", DEAD, key=b"k"),
    Case("item", "a field of another type", b'{"id":"x"}', DEAD),
    Case("item", "a number of many digits", b'{"id":' + b"9" * 5000 + b"}", DEAD),
    Case("item", "a date behind all dates", b'{"id":$id,"at":9e99}', DEAD),
    Case("item", "NaN as a text", b'{"id":$id,"amount":"NaN"}', DEAD),
    Case("item", "infinite", b'{"id":$id,"amount":1e999}', DEAD),
    Case("item", "NaN in Any", b'{"id":$id,"more":NaN}', DEAD),
    _act("an output that the brokers refuse", b'"do":"large"'),
    _act("an output with half a character", b'"do":"surrogate"'),
    _act("an output with a huge number", b'"do":"huge number"'),
    _act("a deep output", b'"do":"deep"'),
    _act("no record", b'"do":"nothing"'),
    _act("what is no text", b'"do":[1]'),
    _act("headers that are none", b'"do":"headers","headers":[1,2,3]'),
    _act("headers of texts", b'"do":"headers","headers":[["a","b"]]'),
    _act("a time of the output behind 2**63", b'"do":"time","time":%d' % 2**64),
    _act("a time of the output in the past", b'"do":"time","time":-5'),
    _act("a topic with a NUL", b'"topic":"a\\u0000b"'),
    _act("a topic with a space", b'"topic":"no such topic!"'),
    _act("a topic that is a number", b'"topic":5'),
    _act("a topic without a name", b'"topic":""'),
    _act("a long topic", b'"topic":"%b"' % (b"x" * 250)),
    _act("two dots", b'"topic":".."'),
    _act("a topic of the brokers", b'"topic":"__consumer_offsets"'),
    _act("the application's control topic", b'"topic":"own-control"'),
    *(
        _act(f"another application's topic, {kind}", b'"topic":"other-%b"' % kind.encode())
        for kind in ("control", "ownership", "x.count-changelog")
    ),
    _act("half a character", b'"topic":"own:\\udcff"'),
    _act("a topic that nobody has made", b'"topic":"own:nowhere"'),
    _act("a topic that is there", b'"topic":"own:chosen"', OUTPUT),
    Case("again", "one that succeeds later", b'{"id":$id,"do":"fail once"}', OUTPUT),
    Case("window", "a key that is a number", b'{"id":$id,"k":7}', DEAD),
    Case("window", "half a key", b'{"id":$id,"k":"\\ud83d"}', DEAD),
    Case("window", "a large key", b'{"id":$id,"k":"%b"}' % (b"x" * 100_000), OUTPUT),
    Case("left", "a key that is no UTF-8", b'{"id":$id}', DEAD, key=b"\xff"),
    Case("rows", "a key that is no UTF-8", b'{"id":$id}', DEAD, key=b"\xff"),
    Case("rows", "a row that is deleted", None, OUTPUT, key=b"other"),
    Case("kept", "NUL in a text", b'{"id":$id,"text":"\\u0000"}', DEAD),
    Case("kept", "NUL in JSON", b'{"id":$id,"body":{"a":"\\u0000"}}', DEAD),
    Case("kept", "NUL in a name of JSON", b'{"id":$id,"body":{"\\u0000":1}}', DEAD),
    Case("kept", "a number beyond bigint", b'{"id":99999999999999999999}', DEAD),
    Case("kept", "a text for a number", b'{"id":$id,"amount":"x"}', DEAD),
    Case("kept", "a list for a text", b'{"id":$id,"text":[[1],[2,3]]}', ALL),
    Case("kept", "refused, with any bytes in a header", b"{", DEAD, headers=((b"h", b"\0\xff"),)),
)


def inputs() -> list[Input]:
    """Return the cases as inputs, with a healthy record of the lane before and behind each."""
    numbers = count()
    made: list[Input] = []
    for case in cases():
        healthy = HEALTHY[case.lane]
        made += [each.as_input(next(numbers)) for each in (healthy, case)]
    made += [healthy.as_input(next(numbers)) for healthy in HEALTHY.values()]
    return made
