"""Values as columns take them without a change; a value that a column would change is refused.

PostgreSQL rounds digits that a type does not keep and drops the zone of a text without an error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import partial
from types import NoneType
from typing import Any, cast
from uuid import UUID

from orjson import Fragment
from pydantic import BaseModel

from eosframework.postgres.database.tables.table_shapes import MICROSECONDS, Column, ColumnType
from eosframework.serialization.serdes import ModelSerde, TypedSerde, serde_of, type_of
from eosframework.serialization.strict_json import write_with

Converter = Callable[[Any], Any]

_FRACTION = re.compile(r":\d\d[.,](\d+)")
_TIME = re.compile(r"\s*\d\d?:\d\d(?::\d\d(?:\.\d+)?)?\s*(?:am|pm)?\s*", re.I)
_ENDS_WITH_TIME = re.compile(r"\d:\d\d(?::\d\d(?:\.\d+)?)?(?:\s*(?:am|pm|bc|ad))*\s*$", re.I)


_NUMBERS = (int, float, Decimal, str)
_KINDS: dict[str, tuple[type, ...]] = {
    "integer": _NUMBERS,
    "numeric": _NUMBERS,
    "double": _NUMBERS,
    "real": _NUMBERS,
    "boolean": (bool, str),
    "text": (bool, *_NUMBERS, UUID, date, time),
    "enum": (str,),
    "bytea": (bytes, bytearray, memoryview, str),
    "date": (date, str),
    "time": (time, datetime, str),
    "timestamp": (date, str),
    "timestamptz": (date, str),
    "interval": (timedelta, str),
    "uuid": (UUID, str),
    "array": (list, tuple, str),
}
"""The Python types of the values of a family, or the text form of its type. PostgreSQL would take
the text of others, too: a UUID of digits alone as a number, 0 as false, any text as bytes."""


def converter(column: Column, annotation: Any, kind: type) -> Converter | None:
    """Return the function that converts values of a type for a column; None: as they are.

    The function raises ValueError or TypeError if the column would change the value.

    Args:
        column: of the table.
        annotation: the type that the row's model declares; None: none is declared.
        kind: the class of the values.

    Raises:
        TypeError: the column takes no such values.
    """
    try:
        convert = _of_kind(column.type, annotation, kind)
    except _OtherKind as error:
        raise TypeError(f"column {column.name} ({column.sql_type}) {error}") from None
    if convert is None:
        return None

    def convert_or_name(value: Any) -> Any:
        try:
            return convert(value)
        except _Changed as error:
            raise ValueError(
                f"{value!r:.80} has {error}, which column {column.name} ({column.sql_type}) would "
                f"drop"
            ) from None
        except _OtherKind as error:
            raise TypeError(f"column {column.name} ({column.sql_type}) {error}") from None

    return convert_or_name


class _Changed(ValueError):
    """The part of a value that a column would drop."""


class _OtherKind(TypeError):
    """A type whose values a column does not hold."""


def _of_kind(type_: ColumnType, annotation: Any, kind: type) -> Converter | None:
    family = type_.family
    if kind is NoneType:
        return None
    if family == "json":
        return _document(annotation)
    if issubclass(kind, Enum) and not issubclass(kind, str | int | float):
        return partial(_member, type_)
    known = _KINDS.get(family)
    is_number = known is _NUMBERS and issubclass(kind, bool)
    if known is not None and (is_number or not issubclass(kind, known)):
        names = ", ".join(each.__name__ for each in known)
        raise _OtherKind(f"takes {names}, got {kind.__name__}")
    if family == "text" and kind in (bool, UUID):
        return _lower_text
    return _of_type(type_)


def _lower_text(value: Any) -> str:
    """Return a truth value or UUID as JSON writes it."""
    return str(value).lower()


def _member(type_: ColumnType, value: Enum) -> Any:
    """Return the value of a member; psycopg would write its name."""
    return _converted(type_, value.value)


def _converted(type_: ColumnType, value: Any) -> Any:
    kind: Any = value.__class__
    convert = _of_kind(type_, None, kind)
    return value if convert is None else convert(value)


def _of_type(type_: ColumnType) -> Converter | None:
    if type_.item is not None:
        return partial(_each, type_.item)
    match type_.family:
        case "double":
            return partial(_float, _as_double)
        case "real":
            return partial(_float, _as_real)
        case "date":
            return _date
        case "time":
            return partial(_time, _kept(type_))
        case "timestamp":
            return partial(_timestamp, _kept(type_))
        case "numeric" if type_.places is not None:
            return partial(_number, type_.places)
        case "timestamptz" | "interval" if type_.places is not None:
            return partial(_require_places, type_.places)
        case _:
            return None


def _kept(type_: ColumnType) -> int:
    return MICROSECONDS if type_.places is None else type_.places


def _each(item: ColumnType, values: Any) -> Any:
    if isinstance(values, str):
        return values
    return [
        # An array of arrays has one type in PostgreSQL.
        _each(item, value) if isinstance(value, list | tuple) else _converted(item, value)
        for value in cast("Iterable[Any]", values)
    ]


def _document(annotation: Any) -> Converter:
    """Return the function that writes JSON: of a declared type as its serde does."""
    serde = None if annotation is None else serde_of(annotation)
    if isinstance(serde, TypedSerde | ModelSerde) and type_of(serde) not in (Any, object):
        encode: Any = serde.encode
        return lambda value: encode(value).decode()
    return lambda value: write_with(value, _plain).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Decimal) and value.is_finite():
        return Fragment(str(value))
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _number(places: int, value: Any) -> Any:
    # A float that is its own rounding has no more digits, which is ten times as fast to find.
    if type(value) in (int, float) and value - value == 0 and round(value, places) == value:
        return value
    number = _decimal(value)
    if number is None or not number.is_finite():
        return value
    _, digits, exponent = number.as_tuple()
    dropped = -int(exponent) - places
    if dropped > 0 and any(digits[-dropped:]):
        raise _Changed(f"more than {places} digits after the point")
    return value


def _float(read: Callable[[Decimal], tuple[float, str]], value: Any) -> Any:
    if type(value) is float and read is _as_double:
        return value
    number = _decimal(value)
    if number is not None and number.is_finite():
        try:
            kept, shown = read(number)
        except OverflowError:
            return value  # The database refuses it.
        if value != kept and number not in (Decimal(kept), Decimal(shown)):
            raise _Changed("more digits than a float")
    return value


def _as_double(number: Decimal) -> tuple[float, str]:
    """Return the nearest float, and its text: the fewest digits that only this float has."""
    return float(number), repr(float(number))


def _as_real(number: Decimal) -> tuple[float, str]:
    packed = struct.pack("f", number)
    [kept] = struct.unpack("f", packed)
    texts = (f"{kept:.{digits}g}" for digits in range(1, 10))
    return kept, next(text for text in texts if struct.pack("f", float(text)) == packed)


def _decimal(value: Any) -> Decimal | None:
    """Return a number, or that of a text; None: it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, int | Decimal):
        return Decimal(value)
    try:
        return Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None


def _date(value: Any) -> Any:
    if isinstance(value, str):
        found = _parsed(value)
        if found is None and ":" in value:
            raise _Changed("more than a date")
    else:
        found = value
    if isinstance(found, datetime):
        if found.time() != time() or found.utcoffset():
            raise _Changed("a time")
        return found.date()
    return value


def _time(places: int, value: Any) -> Any:
    if isinstance(value, datetime):
        raise _Changed("a date")
    if isinstance(value, time) and value.tzinfo is not None:
        raise _Changed("a zone")
    if isinstance(value, str) and (_parsed(value) or (":" in value and not _TIME.fullmatch(value))):
        raise _Changed("more than a time")
    return _require_places(places, value)


def _timestamp(places: int, value: Any) -> Any:
    """Return a time as UTC, without a zone."""
    _require_places(places, value)
    found = _parsed(value) if isinstance(value, str) else value
    if isinstance(found, datetime) and found.utcoffset():
        if isinstance(value, str):
            _require_places(MICROSECONDS, value)
        return found.astimezone(UTC).replace(tzinfo=None)
    if found is None and ":" in value and not _ENDS_WITH_TIME.search(value):
        raise _Changed("a zone")
    return value


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _require_places(places: int, value: Any) -> Any:
    """Return a time, unless it has more digits after its seconds."""
    if isinstance(value, str):
        found = _FRACTION.search(value)
        digits = "" if found is None else found[1]
    elif isinstance(value, datetime | time):
        digits = f"{value.microsecond:06}"
    elif isinstance(value, timedelta):
        digits = f"{value.microseconds:06}"
    else:
        return value
    if digits[max(places, 0) :].strip("0"):
        raise _Changed(f"more than {places} digits after its seconds")
    return value
