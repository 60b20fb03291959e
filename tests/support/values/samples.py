"""Values of each Python type at their bounds."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

EAST = timezone(timedelta(hours=2))
ODD = timezone(timedelta(hours=-5, minutes=-30, seconds=-15))
NOON = datetime(2026, 1, 1, 12, 0, 0, 1)
DIGITS = "1234567890" * 7 + "12345678"
"""78 digits: one more than a 256-bit integer has."""


class Paint(Enum):
    """An enumeration whose members are no texts themselves."""

    RED = "red"


SAMPLES: dict[str, list[Any]] = {
    "bool": [True, False],
    "int": [
        *(0, -1, 2**15 - 1, 2**15, 2**31 - 1, -(2**31), 2**31, 2**53 + 1),
        *(2**63 - 1, -(2**63), 2**63, 2**64, int(DIGITS)),
    ],
    "float": [0.0, -0.0, 0.1, 2.5, 19.999, 1e300, 5e-324, float(2**53), math.nan, -math.inf],
    "Decimal": [
        *map(Decimal, ("0", "-0.1", "19.999", "1E+2", "1.10", "NaN", DIGITS, f"0.{DIGITS}")),
    ],
    "str": ["", "a", " a ", "5", "-0.0", "true", "2026-01-01", "longer than five", "ü", "a\\N\t\n"],
    "str with NUL or surrogate": ["a\0b", "\ud800"],
    "bytes": [b"", b"\0\xff\\"],
    "date": [date.min, date(2026, 1, 31), date.max],
    "datetime without zone": [NOON, datetime.min, datetime.max],
    "datetime": [
        *(NOON.replace(tzinfo=zone) for zone in (UTC, EAST, ODD)),
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
    "time": [time.min, time(12, 0, 0, 1), time.max],
    "timedelta": [timedelta(0), timedelta(microseconds=-1), timedelta(days=40, hours=1)],
    "UUID": [UUID(int=0), UUID(int=2**128 - 1)],
    "dict": [{}, {"a": 1, "b": [None, 2**64, "ü"]}, {"n": Decimal("1234567890123456.78")}],
    "list": [[], [1, 2], ["a", None]],
    "Enum of str": [Paint.RED],
    "None": [None],
}
