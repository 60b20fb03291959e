"""Inputs of the topology with joins: flights as they landed, and tables for lookups.

The tables must be in their topics before the flights are processed. Each function returns records
to feed, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import UTC, datetime

import orjson

from eosframework.demo.nycflights import Row, rows_of

FedRecord = tuple[bytes, bytes, int]
"""Key, value, and timestamp in milliseconds since the epoch."""

MONTHS = range(1, 13)

TABLES_SINCE = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp()) * 1000
"""Timestamp of table rows without a time: before all flights."""


def landed(months: Container[int] = MONTHS) -> list[FedRecord]:
    """Return flights by airline, in the order in which they became known.

    A flight becomes known when it lands. Its event time is its scheduled departure, so event times
    are out of order: a delayed flight to California follows others scheduled half a day after it. A
    cancelled flight becomes known at its scheduled departure, and a diverted one at its departure.
    The record's timestamp is this time.
    """
    flights = (row for row in rows_of("flights") if row["month"] in months)
    found = [_record(row, "carrier", known_at(row)) for row in flights]
    found.sort(key=lambda record: record[2])
    return found


def weather(months: Container[int] = MONTHS) -> list[FedRecord]:
    """Return hourly observations by airport, by time."""
    observed = (row for row in rows_of("weather") if row["month"] in months)
    found = [_record(row, "origin", _milliseconds(row["time_hour"])) for row in observed]
    found.sort(key=lambda record: record[2])
    return found


def planes() -> Iterable[FedRecord]:
    """Yield planes by tail number."""
    return (_record(row, "tailnum", TABLES_SINCE) for row in rows_of("planes"))


def airports() -> Iterable[FedRecord]:
    """Yield airports by their code."""
    return (_record(row, "faa", TABLES_SINCE) for row in rows_of("airports"))


def airlines() -> Iterable[FedRecord]:
    """Yield airlines by their code."""
    return (_record(row, "carrier", TABLES_SINCE) for row in rows_of("airlines"))


FEEDS: Mapping[str, Callable[[Container[int]], Iterable[FedRecord]]] = {
    "airlines": lambda _: airlines(),
    "airports": lambda _: airports(),
    "planes": lambda _: planes(),
    "weather": weather,
    "flights.landed": landed,
}
"""By topic, tables first: the inputs for the flights of some months."""


def known_at(flight: Row) -> int:
    """Return the time when a flight became known, in milliseconds since the epoch; see `landed`."""
    minutes = flight["minute"] + (flight["dep_delay"] or 0) + (flight["air_time"] or 0)
    return _milliseconds(flight["time_hour"]) + minutes * 60_000


def _record(row: Row, key: str, timestamp: int) -> FedRecord:
    # A copy: many of the objects that orjson returns take 8 KiB each, however short they are.
    return row[key].encode(), memoryview(orjson.dumps(row)).tobytes(), timestamp


def _milliseconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp()) * 1000
