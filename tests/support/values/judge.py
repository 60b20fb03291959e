"""Whether PostgreSQL holds a value, by the text that it shows; a judge without our code."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID


def is_held(value: Any, column: str, shown: str) -> bool:
    """Return whether a column shows a value, exactly."""
    if isinstance(value, Enum):
        value = value.value
    if column in ("json", "jsonb"):
        return _same_json(value, json.loads(shown, parse_float=Decimal))
    if column.startswith(("smallint", "integer", "bigint", "numeric", "real", "double")):
        is_single = column == "real" and isinstance(value, int | float | Decimal)
        return _same_number(value, shown) or (is_single and _single(shown) == value)
    match column:
        case "boolean":
            return shown == (value if isinstance(value, str) else str(value).lower())
        case "bytea":
            given = value.encode() if isinstance(value, str) else bytes(value)
            return bytes.fromhex(shown.removeprefix("\\x")) == given
        case "date":
            return date.fromisoformat(shown) == _day(value)
        case "time":
            return time.fromisoformat(shown) == (
                time.fromisoformat(value) if isinstance(value, str) else value
            )
        case "timestamp":
            return datetime.fromisoformat(shown) == _moment(value)
        case "timestamptz" | "timestamptz(0)":
            return datetime.fromisoformat(shown) == _moment(value)
        case "interval":
            given = timedelta(seconds=float(value)) if isinstance(value, str) else value
            return isinstance(given, timedelta) and _interval(shown) == given
        case "uuid":
            return UUID(shown) == (UUID(value) if isinstance(value, str) else value)
        case _:
            return _same_text(value, shown)


def _same_number(value: Any, shown: str) -> bool:
    if isinstance(value, bool):
        return False
    if not isinstance(value, int | float | Decimal | str):
        return False
    given = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    found = Decimal(shown)
    if given.is_nan():
        return found.is_nan()
    # The shortest text of a float means the float.
    return found == given or (isinstance(value, int) and int(float(shown)) == value)


def _single(shown: str) -> float:
    """Return the number of 32 bits that a text means."""
    [number] = struct.unpack("f", struct.pack("f", float(shown)))
    return number


def _same_text(value: Any, shown: str) -> bool:
    match value:
        case str():
            return shown == value
        case bool():
            return shown == str(value).lower()
        case float() if math.isnan(value):
            return shown == "nan"
        case int() | float() | Decimal():
            return _same_number(value, shown) or shown == str(value)
        case datetime():
            return datetime.fromisoformat(shown) == value
        case date():
            return date.fromisoformat(shown) == value
        case time():
            return time.fromisoformat(shown) == value
        case UUID():
            return shown == str(value)
        case list():
            inner = [v or None for v in shown.strip("{}").split(",")] if shown != "{}" else []
            return inner == ["NULL" if v is None else str(v) for v in value]
        case _:
            return False


def _same_json(value: Any, found: Any) -> bool:
    match value:
        case bool() | None:
            return found is value
        case int() | float() | Decimal():
            return _same_number(value, str(found)) and not isinstance(found, bool)
        case dict():
            return value.keys() == found.keys() and all(
                _same_json(each, found[name]) for name, each in value.items()
            )
        case list():
            return len(value) == len(found) and all(map(_same_json, value, found))
        case str():
            return found == value
        case _:
            return isinstance(found, str) and _same_text(value, found)


def _day(value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(value, datetime):
        assert (value.time(), value.utcoffset() or timedelta(0)) == (time(), timedelta(0))
        return value.date()
    return value


def _moment(value: Any) -> datetime:
    """Return a time in UTC, without a zone; one without a zone is UTC."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return datetime.combine(value, time())
    return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value


def _interval(shown: str) -> timedelta:
    days, _, clock = shown.rpartition(" ")
    sign = -1 if clock.startswith("-") else 1
    hours, minutes, seconds = clock.lstrip("+-").split(":")
    within = timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))
    return timedelta(days=int(days.split()[0]) if days else 0) + sign * within
