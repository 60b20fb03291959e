"""The archive of the demo, and what compares its two worlds."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from eosframework.demo.backfill_demo import (
    Comparison,
    Flights,
    Span,
    compare,
    counts,
    flight,
    flights_of,
)


def day(month: int, number: int) -> datetime:
    return datetime(2013, month, number, tzinfo=UTC)


@pytest.fixture(scope="module")
def flights() -> Flights:
    return flights_of(Span(day(1, 30), day(2, 2), day(2, 3)))


def test_a_row_of_the_archive_is_the_record_that_is_fed(flights: Flights, tmp_path: Path) -> None:
    files = flights.write(tmp_path / "archive")
    assert [file.name for file in files] == ["flights-2013-01.csv", "flights-2013-02.csv"]
    read: list[tuple[bytes, bytes, int]] = []
    for file in files:
        with file.open(newline="") as opened:
            for row in csv.DictReader(opened):
                record = flight({name: cell or None for name, cell in row.items()})
                read.append((record.key.encode(), orjson.dumps(record.value), record.timestamp))
    assert Counter(read) == Counter(flights.archived)
    assert len(read) > 2000


def test_the_archive_is_fed_by_time_and_the_rest_as_it_became_known(flights: Flights) -> None:
    hours = [orjson.loads(value)["time_hour"] for _, value, _ in flights.archived]
    assert hours == sorted(hours)
    known = [at for *_, at in flights.live]
    assert known == sorted(known)
    assert max(at for *_, at in flights.archived) < day(2, 2).timestamp() * 1000 <= known[0]
    assert flights.whole == [*flights.archived, *flights.live]


def test_records_that_are_lost_doubled_or_others_are_counted() -> None:
    live = {"same": Counter([b"a", b"a", b"b"]), "other": Counter([b"a", b"b"])}
    backfilled = {"same": Counter([b"b", b"a", b"a"]), "other": Counter([b"a", b"a", b"c"])}
    found = compare(backfilled, live)
    assert found == [Comparison("other", 2, 1, 2), Comparison("same", 3, 0, 0)]
    assert [one.equal for one in found] == [False, True]
    assert counts(found) == {"compared": 5, "missing": 1, "extra": 2}
