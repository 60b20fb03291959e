"""The flights in two parts: files with those known before the cutover, and live ones.

A file has the flights that became known in a month, in that order. A backfill reads files by event
time, path and row, so the live world must get the archived flights in this order.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from eosframework.demo.feeds import FedRecord, known_at, landed
from eosframework.demo.nycflights import Row, typed
from eosframework.records import Record

MINUTE = 60_000
"""In milliseconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """The period of flights: its bounds, and the cutover from archive to live."""

    since: datetime
    cutover: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Flights:
    """The flights of a span, by the time they became known.

    Args:
        archived: before the cutover, in the order in which a backfill reads the files.
        live: later, in the order in which they became known.
        files: the archived ones by file name, in file order.
    """

    archived: Sequence[FedRecord]
    live: Sequence[FedRecord]
    files: Mapping[str, Sequence[FedRecord]]

    @property
    def whole(self) -> list[FedRecord]:
        """All flights, as fed to a topic without a backfill."""
        return [*self.archived, *self.live]

    def write(self, directory: Path) -> list[Path]:
        """Write the archive, a file for each month, and return the files."""
        directory.mkdir()
        for name, records in self.files.items():
            _write_rows(directory / name, records)
        return [directory / name for name in self.files]


def flights_of(span: Span) -> Flights:
    """Return the flights of a span, in their two parts."""
    since, cutover, until = (
        int(moment.timestamp() * 1000) for moment in (span.since, span.cutover, span.until)
    )
    files: defaultdict[str, list[FedRecord]] = defaultdict(list)
    live: list[FedRecord] = []
    for record in landed():
        known = record[2]
        if since <= known < cutover:
            files[f"flights-{datetime.fromtimestamp(known / 1000, UTC):%Y-%m}.csv"].append(record)
        elif cutover <= known < until:
            live.append(record)
    return Flights(_as_read(files), live, dict(files))


def flight(row: dict[str, Any]) -> Record:
    """Return a row of the archive as the record fed live: the same bytes and time."""
    known = typed("flights", row)
    return Record(known["carrier"], known, known_at(known))


def _as_read(files: Mapping[str, Sequence[FedRecord]]) -> list[FedRecord]:
    placed = [
        (_departure(orjson.loads(record[1])), name, number, record)
        for name, records in files.items()
        for number, record in enumerate(records)
    ]
    placed.sort(key=lambda place: place[:3])
    return [record for *_, record in placed]


def _departure(row: Row) -> int:
    hour = datetime.fromisoformat(row["time_hour"])
    return int(hour.timestamp()) * 1000 + row["minute"] * MINUTE


def _write_rows(path: Path, records: Sequence[FedRecord]) -> None:
    rows: list[Row] = [orjson.loads(value) for _, value, _ in records]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
