"""Plain data with bytes in it, packed: msgpack, compressed by zlib at its fastest level."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

_FASTEST = 1
_ENCODER = msgspec.msgpack.Encoder(enc_hook=lambda _: None)


def encoded(content: Any) -> bytes:
    """Return lists, tuples, texts, bytes, numbers and None as bytes; other values become None."""
    return _ENCODER.encode(content)


def decoded(data: bytes) -> Any:
    """Return what `encoded` was given, with lists in place of tuples."""
    return msgspec.msgpack.decode(data)


def packed(content: Any) -> bytes:
    """Return what `encoded` returns, compressed."""
    return zlib.compress(encoded(content), _FASTEST)


def unpacked(data: bytes) -> Any:
    """Return what `packed` was given, with lists in place of tuples."""
    return decoded(zlib.decompress(data))
