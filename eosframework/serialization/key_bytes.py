"""Bytes of keys: equal keys have equal bytes, because keys are compared and partitioned by them.

Members of objects are sorted by name, and -0.0 is written as 0.0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, cast

import orjson
from pydantic import TypeAdapter

from eosframework.errors import TopologyError
from eosframework.serialization import strict_json
from eosframework.serialization.serdes import FLOAT, JSON, WINDOW, Serde, TypedSerde
from eosframework.serialization.strict_json import write_with

Encode = Callable[[Any], bytes]

_UNSORTED = frozenset({"dict", "any", "typed-dict"})
"""Kinds of core schemas whose members have the order in which they were inserted."""

_UNORDERED = frozenset({"set", "frozenset"})


@cache
def key_encoder(serde: Serde) -> Encode | None:
    """Return the function that encodes keys; None: the key already is the bytes.

    Raises:
        TopologyError: the type of the keys has a set, which is written in no fixed order.
    """
    if serde.encode is None:
        return None
    if serde.name in (JSON.name, WINDOW.name):
        return sorted_json
    if serde.name == FLOAT.name:
        return _encode_float
    if serde.codec is not None:
        return partial(_sorted_first, serde.encode)
    if isinstance(serde, TypedSerde):
        return _of_type(serde, serde.type)
    return serde.encode if serde.model is None else _of_type(serde, serde.model)


def _of_type(serde: Serde, of: Any) -> Encode | None:
    kinds = _kinds(TypeAdapter(of).core_schema)
    if kinds & _UNORDERED:
        raise TopologyError(
            f"{serde.name} cannot be a key: it has a set, which is written in no fixed order, so "
            f"equal keys would be different bytes; use a sorted tuple or list"
        )
    if kinds & _UNSORTED:
        return partial(_sorted, serde)
    return partial(_as_declared, serde) if "float" in kinds else serde.encode


def _kinds(schema: Any) -> set[str]:
    """Return the kinds of all parts of a core schema."""
    if isinstance(schema, list | tuple):
        return set[str]().union(*map(_kinds, cast("list[Any]", schema)))
    if not isinstance(schema, dict):
        return set()
    known = cast("dict[str, Any]", schema)
    found = set[str]().union(*map(_kinds, known.values()))
    if "allow" in (known.get("extra_behavior"), known.get("extra_fields_behavior")):
        found.add("any")
    return found | {known["type"]} if isinstance(known.get("type"), str) else found


def sorted_json(key: Any) -> bytes:
    """Return a key as JSON."""
    data = write_with(key, option=orjson.OPT_SORT_KEYS)
    if b"-0.0" in data:  # A number, or a text.
        return write_with(_without_negative_zero(key), option=orjson.OPT_SORT_KEYS)
    return data


def _sorted(serde: Serde, key: Any) -> bytes:
    assert serde.encode is not None, "types have an encoder"
    return sorted_json(strict_json.read(serde.encode(key)))


def _as_declared(serde: Serde, key: Any) -> bytes:
    """Return a key's JSON, its members in the order of its type."""
    assert serde.encode is not None, "types have an encoder"
    data = serde.encode(key)
    if b"-0.0" in data:
        return write_with(_without_negative_zero(strict_json.read(data)))
    return data


def _sorted_first(encode: Encode, key: Any) -> bytes:
    """Return the bytes of a key whose members were sorted before, for formats with schemas."""
    return encode(_sorted_members(key))


def _encode_float(key: Any) -> bytes:
    assert FLOAT.encode is not None, "floats have an encoder"
    return FLOAT.encode(key + 0.0 if type(key) is float else key)  # -0.0 + 0.0 is 0.0


def _sorted_members(value: Any) -> Any:
    if type(value) is dict:
        members = cast("dict[Any, Any]", value)
        return {name: _sorted_members(members[name]) for name in sorted(members)}
    if type(value) is list:
        return [_sorted_members(member) for member in cast("list[Any]", value)]
    return value


def _without_negative_zero(value: Any) -> Any:
    kind: Any = value.__class__
    if kind is float:
        return value + 0.0
    if kind is dict:
        members = cast("dict[Any, Any]", value)
        return {name: _without_negative_zero(member) for name, member in members.items()}
    if kind is list or kind is tuple:
        return [_without_negative_zero(member) for member in cast("list[Any]", value)]
    return value
