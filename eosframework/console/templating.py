"""The templates, and the forms of numbers and times in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def templates() -> Environment:
    """Return the templates; every value in them is escaped."""
    environment = Environment(
        loader=PackageLoader("eosframework.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    given: dict[str, Any] = {
        "count": count,
        "counted": counted,
        "duration": duration,
        "moment": moment,
        "clock": clock,
    }
    environment.filters.update(given)  # pyright: ignore[reportUnknownMemberType]
    return environment


def count(number: float | None) -> str:
    """Return a number with separators; None is a dash."""
    if number is None:
        return "–"
    return f"{number:,.1f}" if isinstance(number, float) else f"{number:,}"


def counted(number: int, what: str) -> str:
    """Return a number of things."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def duration(seconds: float | None) -> str:
    """Return a duration; None is a dash."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def moment(value: Any) -> str:
    """Return a time in UTC, of a datetime or of milliseconds since the epoch; None is a dash."""
    found = _datetime(value)
    return "–" if found is None else f"{found:%Y-%m-%d %H:%M:%S}.{found.microsecond // 1000:03d}"


def clock(value: Any) -> str:
    """Return the time of day in UTC; see `moment`."""
    found = _datetime(value)
    return "–" if found is None else f"{found:%H:%M:%S}.{found.microsecond // 1000:03d}"


def _datetime(value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    try:
        return datetime.fromtimestamp(value / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
