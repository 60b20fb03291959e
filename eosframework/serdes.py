"""Between bytes in a log and Python values: bytes, string, integer, float, json, pydantic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Serde:
    """A pair of functions that round-trip: `decode(encode(value)) == value`.

    Neither is called for None: a null key or value (a tombstone) stays None.

    Args:
        name: `bytes`, `string`, `integer`, `float`, `json`, or `module:Model`.
        encode: value to bytes; None where the value already is the bytes.
        decode: bytes to value; None where the value is the bytes themselves.
    """

    name: str
    encode: Callable[[Any], bytes] | None
    decode: Callable[[bytes], Any] | None
