"""Keys as text, and keys and values as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from pydantic import BaseModel

from eosframework.errors import ConfigurationError
from eosframework.serialization.json_numbers import Unreadable, read, write_large
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import Store

HEXADECIMAL = "0x"
"""Prefix of hexadecimal digits for bytes that are not text."""


def key_of(store: Store, text: str) -> bytes:
    """Return a key, encoded by the store's serde.

    Unless the keys are strings, `0x` and hexadecimal digits give the encoded bytes directly.

    Args:
        store: of the key.
        text: a string or a number as it is, any other key as JSON.

    Raises:
        ConfigurationError: the serde cannot encode the key.
    """
    serde = store.key
    try:
        if text.startswith(HEXADECIMAL) and serde.name != "string":
            return bytes.fromhex(text[len(HEXADECIMAL) :])
        return _encoded(serde, _parsers(serde)(text))
    except (ValueError, TypeError, OverflowError, Unreadable) as error:
        raise ConfigurationError(
            f"{text!r} is not a key of store {store.name!r}, whose keys are {serde.name}: {error}; "
            f"write it as JSON, or its bytes as 0x and hexadecimal digits"
        ) from error


def key_text(store: Store, key: Any) -> str:
    """Return a key as text that `key_of` accepts."""
    shown = plain(key) if isinstance(key, bytes) else key
    return shown if isinstance(shown, str) else as_json(shown).decode()


def as_json(content: Any) -> bytes:
    """Return JSON; bytes that are not UTF-8 become `0x` and hexadecimal digits."""
    try:
        return orjson.dumps(content, plain, orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        return write_large(content, error, plain, orjson.OPT_NON_STR_KEYS)


def plain(value: Any) -> Any:
    """Return the JSON representation of a value of another type."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return HEXADECIMAL + value.hex()
    return str(value)


def _parsers(serde: Serde) -> Callable[[str], Any]:
    if serde.model is not None:
        return serde.model.model_validate_json
    parsers: dict[str, Callable[[str], Any]] = {
        "bytes": str.encode,
        "integer": int,
        "float": float,
        "json": read,
        "window": read,
    }
    return parsers.get(serde.name, str)


def _encoded(serde: Serde, key: Any) -> bytes:
    encode = key_encoder(serde)
    return key if encode is None else encode(key)
