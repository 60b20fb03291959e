"""Values in columns of a real PostgreSQL: as they were, or refused with the column named."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from pydantic import BaseModel, Field, NaiveDatetime

from eosframework.postgres.database.tables.table_schema import apply_tables, plan_tables
from eosframework.serialization.serdes import JSON, STRING
from eosframework.topology.graph.graph import Policy, TableMode, TableSink
from tests.support.servers.row_stores import P0, World, batch, sink, written

BERLIN = timezone(timedelta(hours=2))
NOON = datetime(2026, 7, 4, 12, tzinfo=BERLIN)
REFUSED = None

CASES: dict[str, list[tuple[Any, str | None]]] = {
    "numeric": [
        (2**64 + 1, "18446744073709551617"),
        (Decimal("1." + "0" * 70 + "1"), "1." + "0" * 70 + "1"),
        ("1E+3", "1000"),
        (0.1, "0.1"),
    ],
    "numeric(10,2)": [
        (19.99, "19.99"),
        (7, "7.00"),
        (Decimal("1.500"), "1.50"),
        ("2E+1", "20.00"),
        (19.999, REFUSED),
        (Decimal("0.001"), REFUSED),
        ("19.999", REFUSED),
        (1e9, REFUSED),
        (float("nan"), "NaN"),
    ],
    "numeric(5,2)[]": [([1.25, None], "{1.25,NULL}"), ([1.255], REFUSED)],
    "double precision": [
        (0.1, "0.1"),
        (2**53, "9.007199254740992e+15"),
        (2**60, "1.152921504606847e+18"),
        (2**53 + 1, REFUSED),
        (Decimal("0.1"), "0.1"),
        (Decimal("0.10000000000000000001"), REFUSED),
        ("1234567890123456789", REFUSED),
        (Decimal("1e400"), REFUSED),
    ],
    "real": [
        (0.1, "0.1"),
        (16777216, "1.6777216e+07"),
        (16777217, REFUSED),
        (0.123456789, REFUSED),
    ],
    "bigint": [(2**63 - 1, str(2**63 - 1)), (2**63, REFUSED), (1.5, REFUSED), ("7", "7")],
    "timestamp": [
        (NOON, "2026-07-04 10:00:00"),
        (datetime(2026, 7, 4, 12), "2026-07-04 12:00:00"),
        ("2026-07-04T12:00:00+02:00", "2026-07-04 10:00:00"),
        ("2026-07-04 12:00:00.000001Z", "2026-07-04 12:00:00.000001"),
        ("2026-07-04 12:00 PM", "2026-07-04 12:00:00"),
        ("2026-07-04", "2026-07-04 00:00:00"),
        ("infinity", "infinity"),
        ("2026-07-04 12:00 Europe/Berlin", REFUSED),
        ("2026-07-04 12:00:00.0000001+02", REFUSED),
        (datetime(1, 1, 1, tzinfo=BERLIN), REFUSED),
    ],
    "timestamp(3)": [
        ("2026-07-04 12:00:00.123", "2026-07-04 12:00:00.123"),
        (NOON, "2026-07-04 10:00:00"),
        ("2026-07-04 12:00:00.1234", REFUSED),
        (NOON.replace(microsecond=1), REFUSED),
    ],
    "timestamptz": [
        (NOON, "2026-07-04 10:00:00+00"),
        ("2026-07-04T12:00:00", "2026-07-04 12:00:00+00"),
        (datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "9999-12-31 23:59:59.999999+00"),
    ],
    "timestamptz(0)": [(NOON, "2026-07-04 10:00:00+00"), (NOON.replace(microsecond=993), REFUSED)],
    "date": [
        (date(2026, 7, 4), "2026-07-04"),
        (datetime(2026, 7, 4), "2026-07-04"),
        ("2026-07-04", "2026-07-04"),
        ("July 4, 2026", "2026-07-04"),
        ("2026-07-04T00:00:00Z", "2026-07-04"),
        (NOON, REFUSED),
        ("2026-07-04T23:30:00Z", REFUSED),
        ("2026-07-04 12:00 PM", REFUSED),
    ],
    "time": [
        (time(12, 0, 0, 1), "12:00:00.000001"),
        ("9:05 pm", "21:05:00"),
        (time(12, tzinfo=BERLIN), REFUSED),
        ("12:00+02", REFUSED),
        ("2026-07-04 12:00", REFUSED),
        (NOON, REFUSED),
    ],
    "time(0)": [(time(12), "12:00:00"), (time(12, 0, 0, 1), REFUSED), ("12:00:00.5", REFUSED)],
    "interval(0)": [(timedelta(1), "1 day"), (timedelta(microseconds=1), REFUSED)],
    "document": [({"a": Decimal("1.10")}, '{"a": 1.10}'), ([1], "[1]"), (float("nan"), REFUSED)],
    "cents": [(1.25, "1.25"), (1.255, REFUSED)],
}
"""By the type of a column: values, and the text that PostgreSQL has afterwards."""


@pytest.mark.parametrize("mode", [TableMode.APPEND, TableMode.UPSERT])
def test_a_value_is_kept_or_its_row_is_refused(world: World, mode: TableMode) -> None:
    world.see("CREATE DOMAIN document AS jsonb; CREATE DOMAIN cents AS numeric(10,2)")
    store, tables = world.store(), world.see
    [claim] = store.claim([P0])
    for kind, cases in CASES.items():
        tables(f"CREATE TABLE t (id integer PRIMARY KEY, value {kind})")
        keys = ("id",) if mode is TableMode.UPSERT else ()
        rows = [{"id": n, "value": value} for n, (value, _) in enumerate(cases)]
        store.write([batch(claim, sink("t", mode, keys, Policy.SKIP), *rows)])
        [claim] = store.claim([P0])
        found = dict(world.see("SELECT id, value::text FROM t"))
        expected = {n: text for n, (_, text) in enumerate(cases) if text is not REFUSED}
        assert found == expected, kind
        tables("DROP TABLE t")


@pytest.mark.parametrize("mode", [TableMode.APPEND, TableMode.UPSERT])
def test_a_type_that_narrows_while_a_writer_runs_rounds_no_value(
    world: World, mode: TableMode
) -> None:
    world.see("CREATE TABLE t (id integer PRIMARY KEY, rate numeric(10,3))")
    store, table = world.store(), sink("t", mode, ("id",) * (mode != "append"), Policy.SKIP)
    [claim] = store.claim([P0])
    [claim] = written(store, batch(claim, table, {"id": 1, "rate": "0.125"}))
    world.see("TRUNCATE t; ALTER TABLE t ALTER rate TYPE numeric(10,2)")
    rows = [{"id": 2, "rate": "0.125"}, {"id": 3, "rate": "0.25"}]
    assert store.write([batch(claim, table, *rows)]).skipped == 1
    assert world.see("SELECT * FROM t") == [(3, Decimal("0.25"))]


class Level(IntEnum):
    LOW = 1


class Part(BaseModel):
    size: int = Field(alias="Size")
    price: Decimal = Decimal("1.10")


@dataclass
class Place:
    city: str


class Documents(BaseModel):
    id: int
    by_number: dict[int, str]
    prices: dict[str, Decimal]
    part: Part
    parts: list[Part]
    at: dict[date, NaiveDatetime]
    place: Place
    either: int | str
    level: dict[str, Level]
    maybe: dict[int, int] | None = None
    ratio: dict[str, float] = {}


DOCUMENTS = Documents(
    id=1,
    by_number={1: "a"},
    prices={"a": Decimal("0.10")},
    part=Part(Size=1),
    parts=[Part(Size=2)],
    at={date(2026, 7, 4): datetime(2026, 7, 4, 12)},
    place=Place("Oslo"),
    either="5",
    level={"a": Level.LOW},
)


def test_documents_are_written_as_their_model_writes_them(world: World) -> None:
    world.see("CREATE DOMAIN document AS jsonb")
    world.see("CREATE TABLE d (id bigint PRIMARY KEY, by_number document, prices document)")
    table = sink("d", TableMode.UPSERT, ("id",), Policy.SKIP, model=Documents)
    apply_tables(world.database, [TableSink("s", "in", STRING, JSON, (table,), Policy.FAIL)])
    store = world.store()
    [claim] = store.claim([P0])
    [claim] = written(store, batch(claim, table, DOCUMENTS))
    [(found,)] = world.see("SELECT to_jsonb(d) FROM d")
    assert found == {
        "id": 1,
        "by_number": {"1": "a"},
        "prices": {"a": "0.10"},
        "part": {"Size": 1, "price": "1.10"},
        "parts": [{"Size": 2, "price": "1.10"}],
        "at": {"2026-07-04": "2026-07-04T12:00:00"},
        "place": {"city": "Oslo"},
        "either": "5",
        "level": {"a": 1},
        "maybe": None,
        "ratio": {},
    }
    assert Documents.model_validate(found) == DOCUMENTS
    bad = DOCUMENTS.model_copy(update={"ratio": {"a": float("nan")}})
    assert store.write([batch(claim, table, bad)]).skipped == 1


class Opaque:
    """A class without a form in JSON."""


class Unwritable(BaseModel, arbitrary_types_allowed=True):
    id: int
    by_name: dict[str, Opaque]


def test_a_document_without_a_form_in_json_is_refused_by_plan(world: World) -> None:
    table = sink("u", model=Unwritable)
    plan = plan_tables(world.database, [TableSink("s", "in", STRING, JSON, (table,), Policy.FAIL)])
    [problem] = plan.problems
    assert "field by_name is of type dict" in problem
