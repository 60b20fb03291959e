"""The base class of all parts of a spec, and durations: `500ms`, `30s`, `10m`, `1h`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    WithJsonSchema,
)

_FORM = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_PATTERN = r"^\d+(\.\d+)?(ms|s|m|h|d)$"


class Declared(BaseModel):
    """A part of a declaration; frozen, and an unknown key is an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )


DurationLike = timedelta | str
"""A timedelta, or a number with its unit: `10m`."""


def duration_of(wanted: Any) -> timedelta:
    """Return the duration that a user wrote.

    Raises:
        ValueError: it is not a duration, is negative, or is not a whole number of milliseconds.
    """
    found = wanted
    if isinstance(wanted, str) and (match := _FORM.fullmatch(wanted.strip())):
        found = _timedelta(float(match[1]) * _SECONDS[match[2]])
    if not isinstance(found, timedelta):
        raise ValueError(
            f"{wanted!r} is no duration; expected a number and its unit, as in 500ms, 30s, 10m, "
            f"1h or 7d"
        )
    if found < timedelta(0) or found % timedelta(milliseconds=1):
        raise ValueError(f"{wanted} cannot be used; expected whole milliseconds, not less than 0")
    return found


def _timedelta(seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"a duration has at most {timedelta.max.days:,} days") from None


def milliseconds(duration: timedelta) -> int:
    """Return a duration as a whole number of milliseconds; the rest is cut off."""
    return duration // timedelta(milliseconds=1)


def short(duration: timedelta | int) -> str:
    """Return the shortest form of a duration, or of a number of milliseconds."""
    left = duration if isinstance(duration, int) else milliseconds(duration)
    units = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
    name, size = next(((n, s) for n, s in units if left and left % s == 0), ("ms", 1))
    return f"{left // size}{name}"


Duration = Annotated[
    timedelta,
    BeforeValidator(duration_of),
    PlainSerializer(short, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _PATTERN, "examples": ["30s", "10m", "1h"]}),
]
"""A field of a spec that holds a duration."""


def _more_than_nothing(ttl: timedelta | None) -> timedelta | None:
    if ttl is not None and not ttl:
        raise ValueError("ttl: 0 keeps nothing; expected more, or leave it out")
    return ttl


Ttl = Annotated[Duration | None, AfterValidator(_more_than_nothing)]
"""A field of a spec: how long an entry is valid; None: forever."""
