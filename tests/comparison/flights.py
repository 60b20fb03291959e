"""The input: real flights, half of them up to two hours out of order, and 1% late."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from eosframework.demo.feeds import Row, rows_of

Fed = tuple[str, dict[str, Any] | None, int]
"""Key, value and event time in milliseconds."""

HOUR_MS = 3_600_000
OUT_OF_ORDER_MS = 2 * HOUR_MS
LATE_MS = 2 * HOUR_MS, 24 * HOUR_MS
LATE_SHARE = 0.01
MINUTE_MS = 60_000
SESSION_GAP_MS, SESSION_GRACE_MS = HOUR_MS // 2, 2 * HOUR_MS
"""Of the sessions in ours.py and java/Windows.java."""

HISTORY_MS = 12 * HOUR_MS
"""Of the tables in ours.py and java/Joins.java. No record is later than twice this: there rows may
follow deletions that this framework has forgotten."""

SPREAD_MS = 3
"""Topics that one task reads have no equal event times, whose order would be undefined."""


def inputs(count: int, seed: int) -> dict[str, list[Fed]]:
    """Return the records of each input topic, in their order, made of the year's first flights."""
    flights = sorted(rows_of("flights"), key=_scheduled)[:count]
    draw = random.Random(seed)
    return {
        "flights": [
            *(by_route := list(_disordered(_by_route(flights), draw))),
            *_joined(by_route),
            *_slid(by_route),
        ],
        "few": list(_disordered(_by_route(flights[: count // 10]), draw)),
        "departures": [*_disordered(_departures(flights), draw), *_lookups(flights)],
        "landings": list(_disordered(_landings(flights, 1), draw)),
        "departed": list(_disordered(_rows(flights), draw)),
        "rows": [*_disordered(_landings(flights, 1, is_table=True), draw), *_versions(flights)],
    }


def _by_route(flights: Iterable[Row]) -> Iterator[Fed]:
    for n, row in enumerate(flights):
        key = f"{row['origin']}-{row['carrier']}"
        yield key, {"n": n, "miles": row["distance"]}, _scheduled(row)


def _joined(flights: Sequence[Fed]) -> Iterator[Fed]:
    """Yield flights of which one joins a session at the last moment, a day after all others.

    Random times meet it too rarely: stream time is exactly the gap and the grace after the session.
    """
    last = max(at for _, _, at in flights)
    start = last - last % HOUR_MS + 25 * HOUR_MS
    at_close = start + SESSION_GAP_MS + SESSION_GRACE_MS
    later = start + 24 * HOUR_MS
    for n, (key, at) in enumerate(
        (("joined", start), ("other", at_close), ("joined", start + MINUTE_MS), ("other", later))
    ):
        yield key, {"n": len(flights) + n, "miles": 100}, at


def _slid(flights: Sequence[Fed]) -> Iterator[Fed]:
    """Yield a flight that is late for a window from which a later one is made, four days after all.

    Random times meet it too rarely.
    """
    last = max(at for _, _, at in flights)
    start = last - last % HOUR_MS + 97 * HOUR_MS
    minutes = (
        *(("slid", -16), ("slid", 15), ("other", 166), ("slid", 35), ("slid", 60)),
        ("other", 25 * 60),
    )
    for n, (key, minute) in enumerate(minutes, 4):
        yield key, {"n": len(flights) + n, "miles": 100}, start + minute * MINUTE_MS


def _versions(flights: Sequence[Row]) -> Iterator[Fed]:
    """Yield two rows a day after all others, which `_lookups` finds."""
    for n, at in enumerate((0, HOUR_MS)):
        yield "versions", {"n": len(flights) + n, "from": "JFK"}, _after_all(flights) + at + 1


def _lookups(flights: Sequence[Row]) -> Iterator[Fed]:
    """Yield departures that look rows up which are older than the history of the task's time.

    One finds the former row, the other the current one. Few of the others do.
    """
    times = (
        ("other", HISTORY_MS + 2 * HOUR_MS),
        ("versions", HOUR_MS // 2),
        ("versions", 2 * HOUR_MS),
    )
    for n, (key, at) in enumerate(times):
        yield key, {"n": len(flights) + n, "to": "LAX"}, _after_all(flights) + at


def _after_all(flights: Sequence[Row]) -> int:
    last = _scheduled(flights[-1])
    return last - last % HOUR_MS + 5 * 24 * HOUR_MS


def _departures(flights: Iterable[Row]) -> Iterator[Fed]:
    for n, row in enumerate(flights):
        yield _aircraft(row), {"n": n, "to": row["dest"]}, _scheduled(row) + _spread(n, 0)


def _rows(flights: Iterable[Row]) -> Iterator[Fed]:
    """Departures as rows of a table, which cancelled flights delete."""
    for n, (key, value, at) in enumerate(_departures(flights)):
        yield key, value if n % 7 else None, at


def _landings(flights: Iterable[Row], topic: int, *, is_table: bool = False) -> Iterator[Fed]:
    for n, row in enumerate(flights):
        if row["dep_delay"] is None or row["air_time"] is None:
            continue
        late = (row["dep_delay"] + row["air_time"]) * MINUTE_MS
        value = None if is_table and n % 5 == 0 else {"n": n, "from": row["origin"]}
        yield _aircraft(row), value, _scheduled(row) + late + _spread(n, topic)


def _aircraft(row: Row) -> str:
    return row["tailnum"] or f"{row['carrier']}{row['flight']}"


def _scheduled(row: Row) -> int:
    return int(datetime.fromisoformat(row["time_hour"]).timestamp()) * 1000 + row["minute"] * (
        MINUTE_MS
    )


def _spread(n: int, topic: int) -> int:
    return n * SPREAD_MS % MINUTE_MS + topic


def _disordered(records: Iterable[Fed], draw: random.Random) -> Iterator[Fed]:
    """Yield records in the order of their arrival: on time, up to two hours later, or late."""
    arrivals: list[tuple[int, Fed]] = []
    for record in records:
        chance, behind = draw.random(), 0
        if chance < LATE_SHARE:
            behind = draw.randrange(*LATE_MS)
        elif chance < 0.5:
            behind = draw.randrange(OUT_OF_ORDER_MS)
        arrivals.append((record[2] + behind, record))
    arrivals.sort(key=lambda arrival: arrival[0])
    return (record for _, record in arrivals)


def encoded(value: dict[str, Any] | None) -> bytes | None:
    """Return the value as JSON; None for a deleted row."""
    return None if value is None else json.dumps(value).encode()
