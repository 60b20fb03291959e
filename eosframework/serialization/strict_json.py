"""JSON that can be read again: without NaN and infinities, not too deep, without overlong numbers.

orjson and pydantic silently write NaN and infinities as null. The null is then taken for a missing
value, or cannot be read into the float that it was.

Numbers in JSON that keep their digits.

- Reading: msgspec reads an integer of any size as an integer, as fast as orjson, which reads one of
  more than 64 bits as a float. pydantic reads a number with a fraction as a float, also for a field
  of type Decimal; `exact_decimals` gives the field the digits of the text.
- Writing: orjson refuses integers of more than 64 bits. A value that contains one is written a
  second time, with the digits of such integers in their place.
"""

from __future__ import annotations

import copyreg
import json
import marshal
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, NoReturn, cast
from uuid import UUID

import msgspec
import orjson
from pydantic import BaseModel, TypeAdapter
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

_raw_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def member(data: bytes, name: str) -> bytes:
    """Return the JSON of an object's member as it stands there."""
    return bytes(_raw_members(data)[name])


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


DEEPEST = 200
"""Most levels of nested objects and lists that pydantic reads; it writes more."""

SHORT_BYTES = 2 * DEEPEST
"""JSON of up to this many bytes is neither too deep nor contains an overlong number."""

LONGEST_NUMBER = 4300
"""Most digits of a number that pydantic reads; it writes more."""

_STRIDE = 1000
_REPLACED = "\ufffd".encode()
_DIGITS = re.compile(rb"\d{%d}" % (LONGEST_NUMBER // _STRIDE))

_DIGIT, _EXPONENT, _OTHER = b"0e "
SHAPES = bytes(
    _DIGIT if byte in b"0123456789" else _EXPONENT if byte in b"eE" else _OTHER
    for byte in range(256)
)
"""Translates digits to 0 and the sign of an exponent to e; "+" is to be deleted."""

find_large_exponent = re.compile(b"0e000").search
FLOAT_DIGITS = 210
"""A number with fewer digits, and an exponent below 100, is below the largest float, 1.8e308."""
_LARGE_INTEGER = b"0" * FLOAT_DIGITS

_OF_NO_FLOAT = frozenset(
    {str, int, bool, type(None), bytes, datetime, date, timedelta, Decimal, UUID}
)

find_null = re.compile(b"null").search
find_nan = re.compile(b"NaN").search
find_infinity = re.compile(b"Infinity").search
"""A compiled pattern's `search` is the fastest way to look for bytes."""

_MARSHAL_VERSION = 2
"""The first that writes a float as "g" and its eight bytes; later ones refer to earlier objects."""

_find_infinite = re.compile(rb"g.{6}[\xf0-\xff][\x7f\xff]", re.DOTALL).search
"""A float whose exponent has only ones, which is NaN or an infinity. Text may look like it."""


def write(value: Any) -> bytes:
    """Return a value as JSON.

    Raises:
        TypeError: the value has no form in JSON.
        ValueError: it contains NaN or an infinity; names the member.
    """
    try:
        data = orjson.dumps(value, as_iso, TIMES)
    except TypeError as error:
        data = write_large(value, error, as_iso, TIMES)
    if find_null(data) and not _is_finite(value):
        refuse_infinite(value)
    return data


TIMES = orjson.OPT_PASSTHROUGH_DATETIME
"""Let orjson leave dates and times to `as_iso`."""


def as_iso(value: Any) -> str:
    """Return a date or time as orjson writes it, but exactly: with `orjson.dumps` and `TIMES`.

    orjson cuts an offset to minutes. Those of local time before standard time have seconds, for
    which RFC 3339 has no form, so such a time is written in UTC.

    Raises:
        TypeError: it is no date or time.
    """
    kind: Any = value.__class__
    if kind is datetime:
        zone = value.tzinfo
        if zone is None or zone is UTC:
            return value.isoformat()
        offset = value.utcoffset()
        has_seconds = offset is not None and (offset.seconds % 60 or offset.microseconds)
        return (value.astimezone(UTC) if has_seconds else value).isoformat()
    if kind is date or (kind is time and value.tzinfo is None):
        return value.isoformat()
    raise TypeError(f"{kind.__name__} has no form in JSON")


def _or_iso(default: Default) -> Default:
    kinds = (datetime, date, time)
    return lambda value: as_iso(value) if value.__class__ in kinds else default(value)


def write_kept(value: Any) -> bytes:
    """Return a value as JSON, as `write`, without objects that would be read as others.

    Raises:
        TypeError: it contains a dataclass, a datetime or another object that is none of JSON.
        ValueError: it contains NaN or an infinity.
    """
    try:
        return _written(value, None, orjson.OPT_PASSTHROUGH_DATACLASS | TIMES)
    except TypeError as error:
        raise TypeError(
            f"{error}; JSON would give it back as another type: annotate the function with the "
            f"type that it returns, or state value="
        ) from error


def without_nan(value: Any, data: bytes) -> bytes | None:
    """Return JSON in which a null was found, if no null stands for a number; None for None.

    For code that writes JSON itself, with `orjson.dumps`, and looks for a null.

    Raises:
        ValueError: the value contains NaN or an infinity; names the member.
    """
    if value is None:
        return None
    if not _is_finite(value):
        refuse_infinite(value)
    return data


def write_with(value: Any, default: Default | None = None, option: int | None = None) -> bytes:
    """Return a value as JSON, as `write`.

    Args:
        value: of types that orjson writes.
        default: converts an object of another type to one that orjson writes.
        option: of orjson.
    """
    return _written(value, as_iso if default is None else _or_iso(default), (option or 0) | TIMES)


def _written(value: Any, default: Default | None, option: int) -> bytes:
    try:
        data = orjson.dumps(value, default, option)
    except TypeError as error:
        data = write_large(value, error, default, option)
    if find_null(data) and not _is_finite(value):
        refuse_infinite(value)
    return data


def refuse_infinite(value: Any) -> None:
    """Raise if a value that orjson has written contains NaN or an infinity.

    Raises:
        ValueError: names the member.
    """
    if (found := next(infinite(value), None)) is not None:
        raise no_number(*found)


def _is_finite(value: Any) -> bool:
    """Return whether all numbers in a value are known to be finite; False: search it."""
    members: Iterable[Any]
    if value.__class__ is dict:
        members = cast("dict[Any, Any]", value).values()
    elif value.__class__ is list:
        members = cast("list[Any]", value)
    elif isinstance(value, BaseModel) and not value.__pydantic_extra__:
        value = value.__dict__
        members = value.values()
    else:
        return False
    for member in members:
        kind = member.__class__
        if kind is float:
            if member - member != 0.0:  # NaN, and so is the difference of two infinities.
                return False
        elif kind not in _OF_NO_FLOAT:
            return _holds_no_infinite(value)
    return True


def _holds_no_infinite(value: Any) -> bool:
    """Return whether all numbers in a nested value of plain types are known to be finite.

    `marshal` writes such a value three times as fast as Python walks it.
    """
    try:
        return _find_infinite(marshal.dumps(value, _MARSHAL_VERSION)) is None
    except ValueError:  # It has a member of another type, or is too deep.
        return False


def has_infinite(value: Any) -> bool:
    """Return whether a value contains NaN or an infinity."""
    return not _is_finite(value) and next(infinite(value), None) is not None


def infinite(value: Any) -> Iterator[tuple[Any, float]]:
    """Yield each NaN and infinity in a value, with the name or index of its member."""
    left: list[Any] = [{None: value}]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            members: Iterable[tuple[Any, Any]] = cast("dict[Any, Any]", found).items()
        else:
            members = enumerate(_members(found))
        for place, member in members:
            kind = member.__class__
            if kind is float:
                if not isfinite(member):
                    yield place, member
            elif kind not in _OF_NO_FLOAT:
                left.append(member)


def _members(value: Any) -> Iterable[Any]:
    """Return the members of a value; empty if it has none in JSON."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).values()
    if isinstance(value, tuple | list | set | frozenset):
        return cast("Iterable[Any]", value)
    if isinstance(value, BaseModel):
        return (value.__dict__, value.__pydantic_extra__)
    if isinstance(value, Enum):
        return (value.value,)
    if is_dataclass(value):
        names = (field.name for field in fields(value) if not field.name.startswith("_"))
        return ({name: getattr(value, name, None) for name in names},)
    return ()


def refuse_constants(data: bytes) -> None:
    """Raise if bytes have NaN or Infinity as a value; pydantic would read them.

    Raises:
        ValueError: they are not JSON.
    """
    json.loads(data, parse_constant=_refuse_constant, parse_int=_unread, parse_float=_unread)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name}; NaN and Infinity are no JSON")


def _unread(digits: str) -> None:
    return None


def may_overflow(shape: bytes) -> bool:
    """Return True if JSON may contain a number above the largest float, which is read as infinity.

    Args:
        shape: the JSON, translated by `SHAPES`.
    """
    return find_large_exponent(shape) is not None or _LARGE_INTEGER in shape


def holds_floats(schema: Any) -> bool:
    """Return True if a model's core schema can have a float, in a member of any type, too."""
    return any_part(
        schema,
        lambda part: (
            part.get("type") in ("float", "any")
            or "allow" in (part.get("extra_behavior"), part.get("extra_fields_behavior"))
        ),
    )


def writes_constants(schema: Any) -> bool:
    """Return True if a model's core schema allows NaN and Infinity (`ser_json_inf_nan`)."""
    return any_part(schema, lambda part: part.get("ser_json_inf_nan") == "constants")


def refuse_surrogates(value: Any) -> None:
    """Raise if a key in a value has a lone surrogate, which pydantic replaces with U+FFFD.

    Raises:
        UnicodeEncodeError: names the surrogate.
    """
    left: list[Any] = [value]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            keys = cast("dict[Any, Any]", found).keys()
            "".join(key for key in keys if isinstance(key, str)).encode()
        left.extend(m for m in _members(found) if m.__class__ not in _OF_NO_FLOAT)


def is_suspicious(data: bytes) -> bool:
    """Return True if JSON may be too deep for pydantic, or contain a number with too many digits.

    The check is cheap, and also True for some readable texts.
    """
    if data.count(b"{") + data.count(b"[") > DEEPEST:
        return True
    # An overlong number has enough digits that every thousandth byte of it is one.
    return len(data) > LONGEST_NUMBER and _DIGITS.search(data[::_STRIDE]) is not None


def refuse_overlong(value: Any, data: bytes, read: Callable[[bytes], Any]) -> None:
    """Raise if JSON is too deep, or contains an overlong number or a replaced surrogate.

    Args:
        value: a model.
        data: its JSON, without a null that stands for a number.
        read: returns a model.

    Raises:
        ValueError: it cannot be read.
    """
    if _REPLACED in data:
        refuse_surrogates(value)
    if is_suspicious(data):
        try:
            read(data)
        except ValueError as error:
            raise ValueError(f"its JSON could not be read again: {error}") from None


def refuse_unreadable(
    value: Any, data: bytes, dump: Callable[[Any], Any], read: Callable[[bytes], Any]
) -> None:
    """Raise if JSON cannot be read as the value that it was written from.

    Args:
        value: a model.
        data: its JSON.
        dump: returns the plain values of a model, NaN and infinities among them.
        read: returns a model.

    Raises:
        ValueError: it cannot be read; names the member that is NaN or infinite.
    """
    wanted = list(infinite(dump(value))) if has_infinite(value) else []
    if not wanted:
        refuse_overlong(value, data, read)
        return
    try:
        again = read(data)
    except ValueError:
        raise no_number(*wanted[0]) from None
    # A user's serializer may have written NaN in a form that the model's validator reads.
    if len(list(infinite(dump(again)))) < len(wanted):
        raise no_number(*wanted[0])


def no_number(place: Any, number: float) -> ValueError:
    """Return the error of a number that JSON has no form for.

    Args:
        place: name or index of the member; None: the value itself.
        number: NaN or an infinity.
    """
    where = "the value" if place is None else f"member {place!r:.60}"
    return ValueError(
        f"{where} is {number}, which JSON has no number for; leave it out, write None, or use "
        f"a serde that has it (float, avro, protobuf)"
    )
