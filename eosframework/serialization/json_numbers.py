"""Numbers in JSON that keep their digits.

- Reading: msgspec reads an integer of any size as an integer, as fast as orjson, which reads one of
  more than 64 bits as a float. pydantic reads a number with a fraction as a float, also for a field
  of type Decimal; `exact_decimals` gives the field the digits of the text.
- Writing: orjson refuses integers of more than 64 bits. A value that contains one is written a
  second time, with the digits of such integers in their place.
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import msgspec
import orjson
from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, core_schema

Default = Callable[[Any], Any]

Unreadable = msgspec.DecodeError
"""The error of bytes that are no JSON."""

_DECODER = msgspec.json.Decoder()

read = _DECODER.decode
"""Return the value of JSON. Integers keep all digits; a number with a fraction or an exponent is a
float.

Raises:
    Unreadable, ValueError, RecursionError: the bytes are no JSON in UTF-8, or contain a
        number above the largest float or of more than 4300 digits.
"""


def _only_decoder() -> Any:
    return _DECODER


def _by_name(decoder: Any) -> Any:
    """Let `read` be the same function in each process that a topology is sent to."""
    if decoder is not _DECODER:
        raise TypeError("cannot pickle a decoder of msgspec")
    return _only_decoder, ()


copyreg.pickle(msgspec.json.Decoder, _by_name)

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def member(data: bytes, name: str) -> bytes:
    """Return the JSON of an object's member as it stands there."""
    return bytes(_members(data)[name])


_SHAPES = bytes(
    ord("0") if byte in b"0123456789." else ord("e") if byte in b"eE+-" else ord(" ")
    for byte in range(256)
)
"""Translates digits and the point to 0, and an exponent with its sign to ee."""

_SAME_AS_FLOAT = 15
"""The most digits that a float always gives back."""
_find_digits = re.compile(b"0" * (_SAME_AS_FLOAT + 1)).search
_find_exponent = re.compile(b"ee000").search

_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
"""The integers that orjson writes."""


def write_large(
    value: Any, refused: TypeError, default: Default | None = None, option: int | None = None
) -> bytes:
    """Return a value as JSON if orjson refused it for an integer of more than 64 bits.

    Args:
        value: the value.
        refused: orjson's error.
        default: as for `orjson.dumps`.
        option: as for `orjson.dumps`.

    Raises:
        TypeError: `refused`, if it has another reason.
        ValueError: an integer has more than 4300 digits.
    """
    if "64-bit" not in str(refused):
        raise refused

    def given(one: Any) -> Any:
        return _with_digits(default(one)) if default is not None else one

    return orjson.dumps(_with_digits(value), None if default is None else given, option)


def _with_digits(value: Any) -> Any:
    """Return a value in which orjson copies the digits of large integers."""
    kind: Any = value.__class__
    if kind is dict:
        members = cast("dict[Any, Any]", value)
        return {name: _with_digits(member) for name, member in members.items()}
    if kind is list or kind is tuple:
        return [_with_digits(member) for member in cast("list[Any]", value)]
    if kind is int and not _SMALLEST <= value <= _LARGEST:
        return orjson.Fragment(str(value))
    return value


def holds_decimals(schema: Any) -> bool:
    """Return True if a model's core schema has a Decimal."""
    return any_part(schema, lambda part: part.get("type") == "decimal")


def any_part(schema: Any, is_wanted: Callable[[dict[str, Any]], bool]) -> bool:
    """Return True if a core schema has a part that `is_wanted` takes."""
    if isinstance(schema, dict):
        known = cast("dict[str, Any]", schema)
        return is_wanted(known) or any(any_part(part, is_wanted) for part in known.values())
    return isinstance(schema, list | tuple) and any(
        any_part(part, is_wanted) for part in cast("list[Any]", schema)
    )


def exact_decimals(
    adapter: TypeAdapter[Any], read: Callable[[bytes], Any]
) -> Callable[[bytes], Any]:
    """Return a validator of JSON that gives each Decimal the digits of the text.

    pydantic validates a number with a fraction as a float. Up to 15 digits that makes no
    difference. JSON with more is validated again: the field of type Decimal, which gets the float,
    looks the digits up by it.

    Args:
        adapter: of the model.
        read: its validator.
    """
    exact = SchemaValidator(_with_lookups(adapter.core_schema), _use_prebuilt=False)

    def decode(data: bytes) -> Any:
        value = read(data)
        shape = data.translate(_SHAPES)
        if _find_digits(shape) or _find_exponent(shape):
            digits = _digits_by_float(data)
            return exact.validate_json(data, context=digits) if digits else value
        return value

    return decode


def _digits_by_float(data: bytes) -> dict[float, Decimal]:
    """Return the exact values of the numbers that are read as floats, by their float.

    Empty if each of them is exact as its float's text.

    Raises:
        ValueError: two different numbers have the same float.
    """
    found: dict[float, Decimal] = {}

    def note(text: str) -> float:
        number, exact = float(text), Decimal(text)
        if found.setdefault(number, exact) != exact:
            raise ValueError(
                f"{found[number]} and {exact} are the same float, so that a Decimal cannot get "
                f"its own digits; write them as texts"
            )
        return number

    msgspec.json.Decoder(float_hook=note).decode(data)
    if all(exact == Decimal(repr(number)) for number, exact in found.items()):
        return {}
    return found


def _with_lookups(schema: Any) -> Any:
    """Return a core schema whose Decimals look up the exact value of a float."""
    if isinstance(schema, dict):
        inner = {name: _with_lookups(part) for name, part in cast("dict[str, Any]", schema).items()}
        if inner.get("type") != "decimal":
            return inner
        reference = inner.pop("ref", None)
        return core_schema.with_info_before_validator_function(
            _exact, cast(Any, inner), ref=reference
        )
    if isinstance(schema, list):
        return [_with_lookups(part) for part in cast("list[Any]", schema)]
    if isinstance(schema, tuple):
        return tuple(_with_lookups(part) for part in cast("tuple[Any, ...]", schema))
    return schema


def _exact(value: Any, info: Any) -> Any:
    return info.context.get(value, value) if type(value) is float else value
