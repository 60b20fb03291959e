"""What the topology with the joins reads: flights as they landed, and tables to look things up in.

The tables have to be in their topics before the flights are processed: a flight meets what is
there. Each function gives records to feed, in order.
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
"""Timestamp of rows that have no time: before all flights."""


def landed(months: Container[int] = MONTHS) -> list[FedRecord]:
    """Return flights by airline, in the order in which they became known.

    A flight becomes known when it lands. Its event time is its scheduled departure, so the order
    is no order of event times: a flight to California that was late comes behind others that were
    to leave half a day after it. One that was cancelled becomes known when it should have left,
    and one that was diverted when it did. The record's timestamp is this time.
    """
    flights = (row for row in rows_of("flights") if row["month"] in months)
    found = [_record(row, "carrier", known_at(row)) for row in flights]
    found.sort(key=lambda record: record[2])
    return found


def weather(months: Container[int] = MONTHS) -> list[FedRecord]:
    """Return hourly observations by airport, in the order of their times."""
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
"""By topic, tables first: what it takes for the flights of some months."""


def known_at(flight: Row) -> int:
    """Return when a flight became known, in milliseconds since the epoch; see `landed`."""
    minutes = flight["minute"] + (flight["dep_delay"] or 0) + (flight["air_time"] or 0)
    return _milliseconds(flight["time_hour"]) + minutes * 60_000


def _record(row: Row, key: str, timestamp: int) -> FedRecord:
    # A copy: many of the objects that orjson returns take 8 KiB each, however short they are.
    return row[key].encode(), memoryview(orjson.dumps(row)).tobytes(), timestamp


def _milliseconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp()) * 1000
