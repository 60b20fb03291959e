"""Two numeric transformations, each record by record and over columns."""

from __future__ import annotations

import math
import os
from typing import Any

import pyarrow as pa
import pyarrow.compute

from eosframework import Topology

pc: Any = pyarrow.compute  # its functions are made when it is imported

EARTH_KM = 6371.0088
FIELDS = ("lat1", "lon1", "lat2", "lon2", "mass_kg", "speed_ms", "fuel_l", "minutes")
SCHEMA = dict.fromkeys(FIELDS, "float64") | {"trip": "int64"}


def trip(value: dict[str, Any]) -> dict[str, Any]:
    """Compute distance, energy, speed and consumption of one trip."""
    lat1, lat2 = math.radians(value["lat1"]), math.radians(value["lat2"])
    half_lat = math.sin((lat2 - lat1) / 2)
    half_lon = math.sin(math.radians(value["lon2"] - value["lon1"]) / 2)
    chord = half_lat * half_lat + math.cos(lat1) * math.cos(lat2) * half_lon * half_lon
    km = 2 * EARTH_KM * math.asin(math.sqrt(chord))
    speed = value["speed_ms"]
    return {
        "trip": value["trip"],
        "km": km,
        "kj": value["mass_kg"] * speed * speed / 2000,
        "kmh": km / (value["minutes"] / 60),
        "l_per_100km": value["fuel_l"] / km * 100,
    }


def _radians(degrees: Any) -> Any:
    return pc.multiply(degrees, math.pi / 180)


def _square(values: Any) -> Any:
    return pc.multiply(values, values)


def trips(batch: Any) -> Any:
    """Compute the same for a batch."""
    lat1, lat2 = _radians(batch["lat1"]), _radians(batch["lat2"])
    half_lat = pc.sin(pc.divide(pc.subtract(lat2, lat1), 2.0))
    half_lon = pc.sin(pc.divide(_radians(pc.subtract(batch["lon2"], batch["lon1"])), 2.0))
    cosines = pc.multiply(pc.cos(lat1), pc.cos(lat2))
    chord = pc.add(_square(half_lat), pc.multiply(cosines, _square(half_lon)))
    km = pc.multiply(pc.asin(pc.sqrt(chord)), 2 * EARTH_KM)
    return pa.record_batch(
        {
            "trip": batch["trip"],
            "km": km,
            "kj": pc.divide(pc.multiply(batch["mass_kg"], _square(batch["speed_ms"])), 2000.0),
            "kmh": pc.divide(km, pc.divide(batch["minutes"], 60.0)),
            "l_per_100km": pc.multiply(pc.divide(batch["fuel_l"], km), 100.0),
        }
    )


DEPOTS = tuple((3.0 + 6 * n, 75.0 - 5 * n) for n in range(12))
"""Latitudes and longitudes."""


def nearest(value: dict[str, Any]) -> dict[str, Any]:
    """Compute how far the nearest depot is."""
    lat, lon = math.radians(value["lat1"]), math.radians(value["lon1"])
    least = 1.0
    for depot_lat, depot_lon in DEPOTS:
        half_lat = math.sin((math.radians(depot_lat) - lat) / 2)
        half_lon = math.sin((math.radians(depot_lon) - lon) / 2)
        cosines = math.cos(lat) * math.cos(math.radians(depot_lat))
        least = min(least, half_lat * half_lat + cosines * half_lon * half_lon)
    return {"trip": value["trip"], "km": 2 * EARTH_KM * math.asin(math.sqrt(least))}


def nearest_of(batch: Any) -> Any:
    """Compute the same for a batch."""
    lat, lon = _radians(batch["lat1"]), _radians(batch["lon1"])
    cos_lat = pc.cos(lat)
    chords: list[Any] = []
    for depot_lat, depot_lon in DEPOTS:
        half_lat = pc.sin(pc.divide(pc.subtract(math.radians(depot_lat), lat), 2.0))
        half_lon = pc.sin(pc.divide(pc.subtract(math.radians(depot_lon), lon), 2.0))
        cosines = pc.multiply(cos_lat, math.cos(math.radians(depot_lat)))
        chords.append(pc.add(_square(half_lat), pc.multiply(cosines, _square(half_lon))))
    least = pc.min_element_wise(1.0, *chords)
    km = pc.multiply(pc.asin(pc.sqrt(least)), 2 * EARTH_KM)
    return pa.record_batch({"trip": batch["trip"], "km": km})


WORKS = {"trip": (trip, trips), "nearest": (nearest, nearest_of)}
"""The two, each for a record and for a batch."""


def declare(what: str, way: str, application: str, source: str, target: str) -> Topology:
    """Declare one of them, by `rows` or by `batches`."""
    of_record, of_batch = WORKS[what]
    app = Topology(application)
    read = app.stream(source, key=bytes, value=dict, name="trips")
    match way:
        case "rows":
            read.map_values(of_record).named("computed").to(target)
        case "batches":
            read.map_batch(of_batch, schema=SCHEMA).named("computed").to(target)
        case _:
            raise ValueError(f"there is no way {way!r}")
    return app


if "BENCH_WAY" in os.environ:
    app = declare(
        os.environ["BENCH_WHAT"],
        os.environ["BENCH_WAY"],
        os.environ["BENCH_APPLICATION"],
        os.environ["BENCH_INPUT"],
        os.environ["BENCH_OUTPUT"],
    )
