"""A warning of event times that are probably not in milliseconds."""

from __future__ import annotations

import structlog

from eosframework.records import moment

YEAR_MS = 365 * 24 * 3_600_000


class UnitCheck:
    """Warns once of a source's event time that fits its record's own timestamp in another unit.

    A time in seconds is a valid time of January 1970: windows of it close with the next record.

    Args:
        source: its name.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._warned = False

    def __call__(self, time_ms: int, own_ms: int) -> None:
        """Check an event time that is more than a year before the record's own timestamp.

        Args:
            time_ms: the event time, taken as milliseconds.
            own_ms: the record's own timestamp.
        """
        if self._warned:
            return
        for factor in (1_000, 1_000_000):
            if abs(time_ms * factor - own_ms) < YEAR_MS:
                self._warned = True
                structlog.get_logger("eosframework.worker").warning(
                    "event_time_unit",
                    source=self._source,
                    event_time=moment(time_ms),
                    record_timestamp=moment(own_ms),
                    fix=f"return milliseconds: times {factor:,} it fits the record's own timestamp",
                )
                return
