"""336,776 real flights as JSON records, and a few broken on purpose."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson

from eosframework.demo.nycflights import count_of, rows_of

FLIGHTS_TO_A_BROKEN_ONE = 10_000

FlightRecord = tuple[bytes, bytes, int]
"""Key, value, and timestamp in milliseconds since the epoch."""


class Flights:
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

    def __iter__(self) -> Iterator[FlightRecord]:
        chance = random.Random(self._seed)
        break_at = -1
        for number, flight in zip(range(self.flights), rows_of("flights"), strict=False):
            if number % FLIGHTS_TO_A_BROKEN_ONE == 0:
                rest = min(FLIGHTS_TO_A_BROKEN_ONE, self.flights - number)
                break_at = number + chance.randrange(rest)
            yield _record(flight, orjson.dumps(flight))
            if number == break_at:
                yield _record(flight, _broken(flight, chance))


def _record(flight: dict[str, Any], value: bytes) -> FlightRecord:
    aircraft = flight["tailnum"] or f"{flight['carrier']}{flight['flight']}"
    hour = datetime.fromisoformat(flight["time_hour"])
    return aircraft.encode(), value, int(hour.timestamp()) * 1000


def _broken(flight: dict[str, Any], chance: random.Random) -> bytes:
    """Return the flight in a form that the topology cannot process."""
    if chance.random() < 0.5:
        return orjson.dumps(flight)[: chance.randrange(1, 60)]
    return orjson.dumps({name: value for name, value in flight.items() if name != "time_hour"})
