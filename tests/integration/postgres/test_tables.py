"""Tables of a topology on a real PostgreSQL: planned, created, extended, never narrowed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pydantic import BaseModel, SecretStr

from eosframework.config import DatabaseSettings
from eosframework.postgres.database import Database
from eosframework.postgres.database.tables.table_schema import apply_tables, plan_tables
from eosframework.postgres.database.tables.table_sink import PostgresRowStore, store_positions
from eosframework.postgres.tables.table_ports import Batch, Deletion, TableRows
from eosframework.records import TopicPartition
from eosframework.serialization.serdes import JSON, STRING
from eosframework.topology.graph.graph import Policy, SinkTable, TableMode, TableSink
from tests.support.memory.scripted_kafka import At
from tests.support.servers.databases import dsn_with


class Order(BaseModel):
    id: int
    amount: Decimal
    note: str | None = None


class Inner(BaseModel):
    n: int


class Everything(BaseModel):
    id: UUID
    amount: Decimal
    ratio: float
    flag: bool
    at: datetime
    day: date
    took: timedelta
    raw: bytes
    tags: list[str]
    sizes: list[int]
    doc: dict[str, Any]
    inner: Inner
    maybe: int | None


def table_sink(*tables: SinkTable) -> TableSink:
    return TableSink("s", "in", STRING, JSON, tables, Policy.FAIL)


def sink(
    table: str, model: type[BaseModel] | None, *keys: str, on_error: Policy = Policy.FAIL
) -> SinkTable:
    mode = TableMode.UPSERT if keys else TableMode.APPEND
    return SinkTable(f"s.to({table})", table, mode, keys, None, model, on_error)


class World:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.database = Database(DatabaseSettings(dsn=SecretStr(dsn)))

    def see(self, query: str) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def problems(self, *tables: SinkTable) -> list[str]:
        return plan_tables(self.database, [table_sink(*tables)]).problems


@pytest.fixture
def world(database: str) -> World:
    return World(database)


def test_what_is_missing_is_planned_then_made_then_complete(world: World) -> None:
    topology = [table_sink(sink("orders", Order, "id"), sink("shop.log", Order))]
    before = plan_tables(world.database, topology)
    assert [t.create for t in before.tables] == [True, True]
    assert before.revisions
    assert "table orders (id BIGINT, amount NUMERIC, note TEXT)" in before.lacking
    made = apply_tables(world.database, topology)
    assert made == before.lacking
    after = plan_tables(world.database, topology)
    assert (after.lacking, after.problems) == ([], [])
    assert apply_tables(world.database, topology) == []
    with pytest.raises(psycopg.errors.UniqueViolation):
        world.see("INSERT INTO orders VALUES (1, 2, NULL), (1, 3, NULL)")


def test_added_fields_become_columns_and_rows_stay(world: World) -> None:
    world.see("CREATE TABLE orders (id bigint PRIMARY KEY, kept text DEFAULT 'k')")
    world.see("INSERT INTO orders (id) VALUES (1)")
    topology = [table_sink(sink("orders", Order, "id"))]
    assert "table orders, columns amount NUMERIC, note TEXT" in apply_tables(
        world.database, topology
    )
    assert world.see("SELECT * FROM orders") == [(1, "k", None, None)]
    assert plan_tables(world.database, topology).lacking == []


def test_a_table_that_does_not_fit_is_explained_and_not_touched(world: World) -> None:
    world.see(
        "CREATE TABLE orders (id text, amount integer, note text NOT NULL, owner int NOT NULL)"
    )
    problems = world.problems(sink("orders", Order, "id"))
    assert len(problems) == 4
    text = "\n".join(problems)
    assert "amount is integer, which does not hold every value" in text
    assert "note is NOT NULL, and the model's field may be None" in text
    assert "ALTER TABLE orders ADD UNIQUE (id)" in text
    assert "owner is NOT NULL without a default" in text
    apply_tables(world.database, [table_sink(sink("orders", Order, "id"))])
    assert len(world.problems(sink("orders", Order, "id"))) == 4


def test_a_table_that_nothing_describes_must_exist(world: World) -> None:
    [problem] = world.problems(sink("orders", None))
    assert "does not exist, and nothing says what its columns are" in problem
    world.see("CREATE TABLE orders (id bigint)")
    assert world.problems(sink("orders", None)) == []


def test_a_missing_privilege_is_found_before_the_first_row(world: World) -> None:
    world.see("CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric, note text)")
    name = world.see("SELECT 'writer_' || current_database()")[0][0]
    world.see(f"CREATE ROLE {name} LOGIN PASSWORD 'p'; GRANT INSERT ON orders TO {name}")
    try:
        limited = World(dsn_with(world.dsn, user=name, password="p"))
        assert limited.problems(sink("orders", Order)) == []
        [problem] = limited.problems(sink("orders", Order, "id"))
        assert "GRANT SELECT, UPDATE ON orders" in problem
    finally:
        world.see(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("Customers", '"Customers"'),
        ('"order"', '"order"'),
        ('Shop."Order ""Lines"". 1"', '"Shop"."Order ""Lines"". 1"'),
    ],
)
def test_names_of_tables_and_columns_may_have_any_spelling(
    world: World, name: str, written: str
) -> None:
    class Line(BaseModel):
        OrderId: int
        order: str

    target = sink(name, Line, "OrderId", "order")
    topology = [table_sink(target)]
    apply_tables(world.database, topology)
    assert (world.problems(target), apply_tables(world.database, topology)) == ([], [])
    world.see(f'ALTER TABLE {written} ADD "Total % :x {{}}" numeric')
    rows = [{"OrderId": 1, "order": "a", "Total % :x {}": n} for n in (1, 2)]
    write(world, target, *rows, Deletion({"OrderId": 2, "order": ""}))
    assert world.see(f"SELECT * FROM {written}") == [(1, "a", Decimal(2))]
    store_positions(world.database, "app", [], emptied=[name])
    assert world.see(f"SELECT * FROM {written}") == []
    world.see(f'ALTER TABLE {written} DROP "OrderId"')
    apply_tables(world.database, topology)
    [problem] = world.problems(target)
    world.see(problem.rpartition(": ")[2])
    assert world.problems(target) == []


class Stock(BaseModel):
    sku: str
    size: str | None
    n: int


def has_one_null(world: World) -> bool:
    """Return whether the server has NULLS NOT DISTINCT."""
    return int(world.see("SHOW server_version_num")[0][0]) >= 150_000


UNUSABLE = {
    "deferrable": ("UNIQUE (sku) DEFERRABLE", "sku", "is deferrable"),
    "one of two": ("UNIQUE (sku), UNIQUE (sku) DEFERRABLE", "sku", "is deferrable"),
    "nullable": ("UNIQUE (sku, size)", "sku size", "key size may be NULL"),
    "no btree": ("EXCLUDE (sku WITH =)", "sku", "has no unique constraint"),
}


def test_a_constraint_by_which_no_row_may_replace_another_is_refused(world: World) -> None:
    for constraint, keys, problem in UNUSABLE.values():
        world.see(f"CREATE TABLE stock (sku text NOT NULL, size text, n int, {constraint})")
        target = sink("stock", Stock, *keys.split())
        [found] = world.problems(target)
        assert problem in found
        if problem != "key size may be NULL":
            with pytest.raises(psycopg.Error):
                world.see(f"INSERT INTO stock VALUES ('a') ON CONFLICT ({keys}) DO NOTHING")
        if "NULLS" not in found or has_one_null(world):
            world.see(found.rpartition(": ")[2])
            assert world.problems(target) == []
        world.see("DROP TABLE stock")


def test_a_unique_index_that_is_invalid_is_refused(world: World) -> None:
    world.see("CREATE TABLE stock (sku text NOT NULL, size text, n int)")
    world.see("INSERT INTO stock VALUES ('a'), ('a')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        world.see("CREATE UNIQUE INDEX CONCURRENTLY by_sku ON stock (sku)")
    [problem] = world.problems(sink("stock", Stock, "sku"))
    assert "unique index by_sku on (sku) is invalid" in problem
    world.see("TRUNCATE stock")
    world.see(problem.rpartition(": ")[2].partition(";")[0])
    assert world.problems(sink("stock", Stock, "sku")) == []


def test_null_is_one_key_where_the_constraint_says_so_and_else_refused(world: World) -> None:
    target = sink("stock", Stock, "sku", "size", on_error=Policy.SKIP)
    target = replace(target, mode=TableMode.UPSERT_DELETE)
    world.see("CREATE TABLE stock (sku text NOT NULL, size text, n int, UNIQUE (sku, size))")
    apply_tables(world.database, [])
    rows = [Stock(sku="a", size=size, n=n) for n, size in enumerate([None, "S", None, "S"])]
    assert write(world, target, *rows).skipped == 2
    assert world.see("SELECT * FROM stock") == [("a", "S", 3)]
    if not has_one_null(world):
        return
    world.see("ALTER TABLE stock ADD UNIQUE NULLS NOT DISTINCT (sku, size)")
    assert world.problems(target) == []
    assert write(world, target, *rows, *rows[::-1]).skipped == 0
    assert world.see("SELECT * FROM stock ORDER BY n") == [("a", None, 0), ("a", "S", 1)]
    write(world, target, Deletion({"sku": "a", "size": None}))
    assert world.see("SELECT * FROM stock") == [("a", "S", 1)]


def test_columns_that_a_trigger_fills_may_be_required(world: World) -> None:
    world.see("CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric, note text NOT NULL)")
    world.see("ALTER TABLE orders ADD owner text NOT NULL")
    assert len(world.problems(sink("orders", Order, "id"))) == 2
    world.see(
        "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.note := coalesce(NEW.note, 'none'); NEW.owner := 'me'; RETURN NEW; END $$"
    )
    world.see("CREATE TRIGGER f BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION fill()")
    assert world.problems(sink("orders", Order, "id")) == []
    apply_tables(world.database, [])
    write(world, sink("orders", Order, "id"), Order(id=1, amount=Decimal(1)))
    write(world, sink("orders", Order), Order(id=2, amount=Decimal(2), note="n"))
    assert world.see("SELECT note, owner FROM orders ORDER BY id") == [("none", "me"), ("n", "me")]


def test_a_view_is_no_table(world: World) -> None:
    for kind in ("VIEW", "MATERIALIZED VIEW"):
        world.see(f"CREATE {kind} orders AS SELECT 1::bigint AS id")
        for keys in ([], ["id"]):
            [problem] = world.problems(sink("orders", Order, *keys))
            assert problem == f"orders is a {kind.lower()}; name a table, to which rows go"
        world.see(f"DROP {kind} orders")


def test_a_key_that_may_be_none_is_refused_before_its_table_is_made(world: World) -> None:
    [problem] = world.problems(sink("stock", Stock, "sku", "size"))
    assert "key size may be None" in problem


def test_a_key_that_is_no_field_is_named(world: World) -> None:
    [problem] = world.problems(sink("orders", Order, "nr"))
    assert "key nr is no field of the model" in problem


def test_values_of_every_type_come_back_from_the_table_that_was_made_for_them(
    world: World,
) -> None:
    target = sink("everything", Everything, "id")
    apply_tables(world.database, [table_sink(target)])
    row = Everything(
        id=UUID(int=1),
        amount=Decimal("12345678901234567890.000000000000001"),
        ratio=0.1,
        flag=False,
        at=datetime(2013, 1, 1, 5, 17, 0, 123456, UTC),
        day=date(2013, 1, 1),
        took=timedelta(days=1, microseconds=1),
        raw=b"\x00\xff\\",
        tags=["a,b", "{}", "", 'q"', "\\N"],
        sizes=[],
        doc={"deep": [1, None, {"é": "\n"}]},
        inner=Inner(n=1),
        maybe=None,
    )
    write(world, target, row)
    [found] = world.see("SELECT * FROM everything")
    expected = row.model_dump()
    assert dict(zip(Everything.model_fields, found, strict=True)) == expected


def test_a_column_added_while_a_worker_runs_is_used_at_once(world: World) -> None:
    world.see("CREATE TABLE orders (id bigint)")
    target = sink("orders", None, on_error=Policy.DEAD_LETTER)
    apply_tables(world.database, [table_sink(target)])
    store = PostgresRowStore(world.database, "app", {"in": "id"})
    try:
        [claim] = store.claim([TopicPartition("in", 0)])
        write(world, target, {"id": 1}, store=store, claim=claim)
        world.see("ALTER TABLE orders ADD COLUMN note text")
        [claim] = store.claim([TopicPartition("in", 0)])
        written = write(
            world, target, {"id": 2, "note": "n"}, {"id": 3, "nope": 1}, store=store, claim=claim
        )
    finally:
        store.close()
    assert world.see("SELECT * FROM orders ORDER BY id") == [(1, None), (2, "n")]
    assert written.dead_letters == 1


def write(world: World, target: SinkTable, *rows: Any, store: Any = None, claim: Any = None) -> Any:
    own = store or PostgresRowStore(world.database, "app", {"in": "id"})
    claim = claim or own.claim([TopicPartition("in", 0)])[0]
    first = claim.next_offset or 0
    origins = [At(b"v", first + n, place=claim.partition) for n in range(len(rows))]
    try:
        return own.write(
            [Batch(claim, first + len(rows), [TableRows(target, list(rows), list(origins))])]
        )
    finally:
        if store is None:
            own.close()
