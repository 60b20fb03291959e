"""The records that the demos feed: 336,776 real flights, and the tables for their joins.

The flights demo feeds flights in the order of the table, and a few broken on purpose. The topology
with joins reads flights as they landed; its tables must be in their topics before the flights are
processed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import UTC, datetime

import orjson

from eosframework.demo.nycflights import Row, count_of, rows_of

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


FLIGHTS_TO_A_BROKEN_ONE = 10_000


class FlightFeed:
    """The flights in the order of the table; iterating yields records to feed.

    Args:
        limit: number of flights, from the first. None: all.
        seed: selects the broken records, and how they are broken.
    """

    def __init__(self, limit: int | None, seed: int) -> None:
        self._seed = seed
        known = count_of("flights")
        self.flights = known if limit is None else min(limit, known)
        self.broken = -(-self.flights // FLIGHTS_TO_A_BROKEN_ONE)

    def __len__(self) -> int:
        return self.flights + self.broken

    def __iter__(self) -> Iterator[FedRecord]:
        chance = random.Random(self._seed)
        break_at = -1
        for number, flight in zip(range(self.flights), rows_of("flights"), strict=False):
            if number % FLIGHTS_TO_A_BROKEN_ONE == 0:
                rest = min(FLIGHTS_TO_A_BROKEN_ONE, self.flights - number)
                break_at = number + chance.randrange(rest)
            yield _flight_record(flight, orjson.dumps(flight))
            if number == break_at:
                yield _flight_record(flight, _broken(flight, chance))


def _flight_record(flight: Row, value: bytes) -> FedRecord:
    aircraft = flight["tailnum"] or f"{flight['carrier']}{flight['flight']}"
    return aircraft.encode(), value, _milliseconds(flight["time_hour"])


def _broken(flight: Row, chance: random.Random) -> bytes:
    """Return the flight in a form that the topology cannot process."""
    if chance.random() < 0.5:
        return orjson.dumps(flight)[: chance.randrange(1, 60)]
    return orjson.dumps({name: value for name, value in flight.items() if name != "time_hour"})
