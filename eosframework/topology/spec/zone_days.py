"""The days of a time zone: intervals of event time from one local midnight to the next.

A day has 23 or 25 hours where the clock is changed. An instant is in the day whose local midnight
is the last one that is not after it. A midnight that the clock skips is read with the offset before
the change (PEP 495, fold 0), and one that it shows twice is the first of both.
Several days are one interval: they are counted from a Monday, so that seven are a week.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import lru_cache
from hashlib import sha256
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAY_MS = 86_400_000

_MONDAY = date(1969, 12, 29).toordinal()
"""The last Monday before the epoch."""

_LAST_MS = 253_370_764_800_000
"""The beginning of the year 9999: `datetime` has no midnight after that year."""


class ZoneDays:
    """Intervals of a number of days of a zone.

    Args:
        zone: its name in the time zone database, as `Europe/Berlin`.
        days: of each interval, at least 1.

    Raises:
        ValueError: this machine has no such zone.
    """

    __slots__ = ("_days", "_zone")

    def __init__(self, zone: str, days: int) -> None:
        self._zone = zone_of(zone)
        self._days = days

    def around(self, time_ms: int) -> tuple[int, int]:
        """Return start and end of the interval that contains a time, in milliseconds.

        The end belongs to the next one. The first interval begins at the epoch, for stores order
        windows by starts that are not negative.

        Raises:
            ValueError: the time is of the year 9999 or later.
        """
        if time_ms >= _LAST_MS:
            raise ValueError(
                f"{time_ms} ms since the epoch is after the year 9998, which has no days of "
                f"{self._zone.key}; is it in microseconds?"
            )
        local = datetime.fromtimestamp(time_ms // 1000, self._zone).toordinal()
        first = _MONDAY + (local - _MONDAY) // self._days * self._days
        # Where the clock goes back over midnight, the local date is not that of the interval.
        while (start := self._midnight(first)) > time_ms:
            first -= self._days
        while (end := self._midnight(first + self._days)) <= time_ms:
            first, start = first + self._days, end
        return max(start, 0), end

    def _midnight(self, day: int) -> int:
        at = datetime.fromordinal(day).replace(tzinfo=self._zone).astimezone(UTC)
        return round(at.timestamp()) * 1000


def zone_of(name: str) -> ZoneInfo:
    """Return a zone of this machine's time zone database.

    Raises:
        ValueError: there is none of this name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"zone: this machine has no time zone {name!r}; expected a name of the time zone "
            f"database, as Europe/Berlin. If the name is right, install its data: pip install "
            f"tzdata"
        ) from error


@lru_cache(maxsize=64)
def zone_days(zone: str, days: int) -> ZoneDays:
    """Return the intervals of a zone; see `ZoneDays`."""
    return ZoneDays(zone, days)


@lru_cache(maxsize=64)
def rules_of(zone: str) -> str:
    """Return a digest of a zone's offsets on this machine, from 1970 to 2050.

    Countries change the rules of their clocks, so machines with data of other releases may divide
    the same time into other days.
    """
    found = zone_of(zone)
    days = range(date(1970, 1, 1).toordinal(), date(2050, 1, 1).toordinal())
    offsets = (datetime.fromordinal(day).replace(tzinfo=found).utcoffset() for day in days)
    return sha256(repr([*map(str, offsets)]).encode()).hexdigest()[:16]
