"""Draws records by a seed, and what plain Python expects of them."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

from tests.hostile.cases import HEALTHY
from tests.hostile.foreign_schemas import FOREIGN
from tests.hostile.inputs import ALL, CODECS, DEAD, OUTPUT, Input, Outcome
from tests.hostile.lanes import IDENTIFIED, LANES, PLAIN, REGISTERED

LARGEST = 400_000
"""Bytes of a drawn value, at most; larger ones are cases of their own."""

SAFE_DEPTH = 200
"""So deep every reader and writer of JSON goes."""

SPAN_MS = 300_000
"""Event times of a round lie within this."""

NAMES = (
    b"h",
    b"",
    b"__eos.receipt",
    b"__streams.errors.topic",
    b"__streams.errors.offset",
    b"__streams.errors.stacktrace",
    b"__eos.errors.attempts",
    b"__eos.errors.due",
    b"__eos.errors.replayed",
    b"__eos.errors.step",
    b"traceparent",
    b"\xff",
    b"a\0",
    "\u00e9\u4e2d".encode(),
)

WORDS = ("", "a", "\0", "\u00e9\u4e2d\U0001f600", "NaN", "-", "1e400", "true", "\ufeff", "\u2028")

NUMBERS = (0, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400, 0.1, -0.0)
NUMBERS += (1e308, 5e-324, float("nan"), float("inf"), float("-inf"))

MEMBERS = ("t", "k", "do", "text", "amount", "body", "topic", "headers", "more", "at", "id", "x")


class Drawing:
    """Draws inputs, the same again for the same seed.

    Args:
        seed: of everything that is drawn.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._number = 1_000_000 * (1 + seed % 1000)

    def inputs(self, count: int, moment: int) -> list[Input]:
        """Draw inputs of all lanes; a third of them are healthy.

        Args:
            count: how many.
            moment: the event time at which they begin, in milliseconds.
        """
        return [self._input(self._draw.choice(LANES), moment) for _ in range(count)]

    def _input(self, lane: str, moment: int) -> Input:
        self._number += 1
        at = moment + self._draw.randrange(SPAN_MS)
        if lane in REGISTERED:
            return self._registered(lane, at)
        number, healthy = self._number, HEALTHY[lane].as_input(self._number)
        key, value = healthy.key, healthy.value
        if lane in ("window", "session", "left", "right", "act"):
            value = json.dumps({"id": number, "k": self._draw.choice("abc"), "t": at}).encode()
        if self._draw.random() < 0.67:
            if self._draw.random() < 0.3:
                key = self._bytes(key)
            if self._draw.random() < 0.7:
                value = self._value(lane, value, number)
        if _means_another(lane, value, number, moment + SPAN_MS):
            value = healthy.value
        headers = tuple(
            (self._draw.choice(NAMES), self._bytes(b"1/a/0/b/0/1/0/1/0/0/1"))
            for _ in range(self._draw.choice((0, 0, 1, 1, 3, 40)))
        )
        codec = self._draw.choice(CODECS)
        expected = expected_of(lane, key, value)
        if (key, value) == (healthy.key, healthy.value):
            expected = OUTPUT
        if key is None and value is None:
            key = b""  # one of the clients refuses to write nothing at all
            expected = expected_of(lane, key, value)
        return Input(lane, number, key, value, headers, at, codec, expected)

    def _registered(self, lane: str, at: int) -> Input:
        """Draw a value of a schema of another writer, changed a little."""
        written = [f for f in FOREIGN if f[0] == lane and f[4] == OUTPUT]
        _, name, schema, value, _ = self._draw.choice(written)
        changed = self._mutated(value)
        return Input(lane, self._number, b"k", changed, (), at, name=name, schema=schema)

    def _bytes(self, former: bytes | None) -> bytes | None:
        draw = self._draw
        match draw.randrange(7):
            case 0:
                return None
            case 1:
                return b""
            case 2:
                return draw.randbytes(draw.choice((1, 7, 8, 9, 200)))
            case 3:
                return draw.randbytes(1) * draw.choice((1, 1000, LARGEST // 10))
            case 4:
                return draw.choice(WORDS).encode()
            case _:
                return self._mutated(former or b"")

    def _mutated(self, data: bytes) -> bytes:
        made = bytearray(data)
        for _ in range(self._draw.randrange(1, 4)):
            at = self._draw.randrange(len(made) + 1)
            match self._draw.randrange(4):
                case 0:
                    made[at:at] = self._draw.randbytes(1)
                case 1:
                    del made[at : at + self._draw.randrange(1, 4)]
                case 2:
                    made[at:at] = made[: self._draw.randrange(20)]
                case _:
                    made[at : at + 1] = self._draw.choice((b"\0", b"\xff", b'"', b"[", b"9"))
        return bytes(made)

    def _value(self, lane: str, healthy: bytes | None, number: int) -> bytes | None:
        draw = self._draw
        if lane in ("raw", "text", "whole", "real") or draw.random() < 0.35:
            return self._bytes(healthy)
        if draw.random() < 0.05:
            depth = draw.choice((100, 1000, 1024, 1025, 100_000))
            return b"[" * depth + b"]" * draw.choice((0, depth))
        content: Any = json.loads(healthy or b"{}")
        if draw.random() < 0.8:
            for _ in range(draw.randrange(1, 4)):
                content[draw.choice(MEMBERS)] = self._json(3)
            if lane not in PLAIN:
                content["id"] = number
        else:
            content = self._json(5)
        text = json.dumps(content, ensure_ascii=draw.random() < 0.5)
        return text.encode(errors="surrogatepass")

    def _json(self, depth: int) -> Any:
        draw = self._draw
        kind = draw.randrange(8 if depth else 5)
        match kind:
            case 0:
                return draw.choice(WORDS)
            case 1:
                return draw.choice(NUMBERS)
            case 2:
                return draw.choice((None, True, False))
            case 3:
                return draw.choice(("\ud800", "x" * draw.choice((10, 10_000, LARGEST // 4))))
            case 4:
                return draw.random() * 10 ** draw.randrange(-20, 20)
            case 5:
                return {draw.choice(WORDS): self._json(depth - 1) for _ in range(3)}
            case _:
                return [self._json(depth - 1) for _ in range(draw.randrange(4))]


def _means_another(lane: str, value: bytes | None, number: int, latest: int) -> bool:
    """Tell whether a value would be taken for another record's, or makes all later ones late.

    Two records that a function of a join does not fit are no one's alone, so those keep their form.
    Late ones are limited by worker.max_event_time_ahead, which has cases of its own.
    """
    try:
        content: Any = json.loads(value or b"null")
    except (RecursionError, ValueError):
        return b"9" * 400 in (value or b"")
    if not isinstance(content, dict):
        return lane in ("left", "right")
    members: dict[str, Any] = content
    moment = members.get("t")
    is_time = isinstance(moment, int) and latest < moment < 253_402_300_800_000
    return is_time or (lane in IDENTIFIED and members.get("id") != number)


def expected_of(lane: str, key: bytes | None, value: bytes | None) -> frozenset[Outcome]:
    """Return what plain Python knows of the outcome of a record; all, where it knows nothing."""
    key_serde, value_serde = PLAIN.get(lane, ("string", "json"))
    if lane in ("act", "again", "window", "session", "kept"):
        key_serde = "bytes"
    found = [
        _KNOWN.get(serde, _json)(data) for serde, data in ((key_serde, key), (value_serde, value))
    ]
    if DEAD in found:
        return DEAD
    if lane in PLAIN and lane != "item" and found == [OUTPUT, OUTPUT]:
        return OUTPUT
    return ALL


def _bytes(_data: bytes | None) -> frozenset[Outcome]:
    return OUTPUT


def _text(data: bytes | None) -> frozenset[Outcome]:
    try:
        (data or b"").decode()
    except UnicodeDecodeError:
        return DEAD
    return OUTPUT


def _eight(data: bytes | None) -> frozenset[Outcome]:
    return OUTPUT if data is None or len(data) == struct.calcsize("q") else DEAD


def _json(data: bytes | None) -> frozenset[Outcome]:
    if data is None:
        return OUTPUT
    try:
        content = json.loads(data.decode())
    except RecursionError:
        return ALL
    except ValueError:
        # Python refuses numbers of many digits; others read them.
        return ALL if b"9" * 400 in data or b"0" * 400 in data else DEAD
    return OUTPUT if _is_safe(content, SAFE_DEPTH) else ALL


def _is_safe(content: Any, depth: int) -> bool:
    """Tell whether every reader and writer of JSON takes a value."""
    if depth == 0:
        return False
    match content:
        case float():
            return math.isfinite(content)
        case bool():
            return True
        case int():
            return -(2**63) <= content < 2**64
        case str():
            return not any("\ud800" <= c <= "\udfff" for c in content)
        case dict():
            members: Mapping[str, Any] = content
            return all(_is_safe(n, depth) and _is_safe(v, depth - 1) for n, v in members.items())
        case list():
            return all(_is_safe(each, depth - 1) for each in content)
        case _:
            return True


_KNOWN: Mapping[str, Callable[[bytes | None], frozenset[Outcome]]] = {
    "bytes": _bytes,
    "string": _text,
    "integer": _eight,
    "float": _eight,
}
