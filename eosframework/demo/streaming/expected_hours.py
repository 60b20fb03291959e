"""The hours as pandas computes them, and as the topic and the table have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import SecretStr

from eosframework.config import DatabaseSettings, KafkaSettings
from eosframework.demo.feeds import FedRecord
from eosframework.demo.stage import PARTITIONS
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.postgres import Database, translating
from eosframework.records import partitions_of

Hour = tuple[str, int]
"""Airport, and seconds since the epoch."""

Figures = tuple[int, int, int, float | None, float | None]
"""Flights, departed ones, minutes of delay, temperature, wind speed."""

FIGURES = ("flights", "departed", "delay_minutes", "temperature", "wind_speed")

_ROWS = b"""
SELECT origin, extract(epoch FROM time_hour)::bigint,
       flights, departed, delay_minutes, temperature, wind_speed
FROM delays_by_hour
"""


def expected(flights: Iterable[FedRecord], weather: Iterable[FedRecord]) -> dict[Hour, Figures]:
    """Return the hours that pandas computes from the fed records."""
    from importlib import import_module

    pandas: Any = import_module("pandas")
    keys = ["origin", "time_hour"]
    known = pandas.DataFrame([orjson.loads(value) for _, value, _ in flights])
    observed = pandas.DataFrame([orjson.loads(value) for _, value, _ in weather])
    hours = known.groupby(keys, as_index=False).agg(
        flights=("dest", "size"),
        departed=("dep_delay", "count"),
        delay_minutes=("dep_delay", "sum"),
    )
    most = observed.groupby(keys, as_index=False).agg(
        temperature=("temp", "max"), wind_speed=("wind_speed", "max")
    )
    joined: list[dict[str, Any]] = hours.merge(most, "left", keys).to_dict("records")
    return {(row["origin"], _seconds(row["time_hour"])): _figures(row) for row in joined}


@dataclass(frozen=True, slots=True)
class Updates:
    """The topic as a `read_committed` reader sees it.

    Args:
        last: the last record of each hour.
        records: number of records.
        repeated: records of an hour that count no more flights than the one before.
    """

    last: Mapping[Hour, Figures]
    records: int
    repeated: int


def read_updates(settings: KafkaSettings, topic: str) -> Updates:
    """Read the topic; the count of an hour grows with each record, unless one is repeated."""
    last: dict[Hour, Figures] = {}
    records = repeated = 0
    bounds = ClusterAdmin(settings).log_bounds(partitions_of({topic: PARTITIONS}))
    for _, messages in read_ranges(settings, bounds):
        for message in messages:
            row = orjson.loads(message.value() or b"")
            hour = row["origin"], _seconds(row["time_hour"])
            figures = _figures(row)
            records += 1
            repeated += hour in last and figures[0] <= last[hour][0]
            last[hour] = figures
    return Updates(last, records, repeated)


def read_table(dsn: str) -> dict[Hour, Figures]:
    """Return the rows of the table."""
    database = Database(
        DatabaseSettings(dsn=SecretStr(dsn)), application_name="eosframework demo spark"
    )
    with (
        translating("read table delays_by_hour"),
        closing(database.connect(autocommit=True)) as connection,
    ):
        rows: Sequence[Any] = connection.execute(_ROWS).fetchall()
    return {
        (origin, int(hour)): _figures(dict(zip(FIGURES, figures, strict=True)))
        for origin, hour, *figures in rows
    }


def differing(found: Mapping[Hour, Figures], wanted: Mapping[Hour, Figures]) -> tuple[int, int]:
    """Return how many hours are missing or wrong, and how many there should not be."""
    ours, theirs = Counter(found.items()), Counter(wanted.items())
    return (theirs - ours).total(), (ours - theirs).total()


def _figures(row: Mapping[str, Any]) -> Figures:
    """Return the figures of an hour; pandas has NaN for unknown ones, JSON null."""
    flights, departed, delay_minutes, *weather = (row[name] for name in FIGURES)
    temperature, wind = (None if one is None or one != one else float(one) for one in weather)
    return int(flights), int(departed), int(delay_minutes), temperature, wind


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp())
