"""What the table writer expects of a row store, asked of the one in memory and of real PostgreSQL.

The table writer's decisions are tested on the store in memory; this is what makes that worth
something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.engine.failures.failure_handler import summary
from eosframework.errors import RowRefused, Superseded
from eosframework.postgres.database import Database, migrate
from eosframework.postgres.database.tables.table_sink import PostgresRowStore
from eosframework.postgres.tables.table_ports import (
    Batch,
    Claim,
    Deletion,
    RefusedRow,
    RowStore,
    TableRows,
)
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Policy, SinkTable, TableMode
from tests.support.memory.scripted_kafka import At
from tests.unit.postgres.tables.memory import MemoryStore

P0, P1 = TopicPartition("in", 0), TopicPartition("in", 1)


@dataclass
class World:
    """A database whose table `t` takes whole numbers.

    Args:
        connect: return the store as another process sees it.
    """

    connect: Callable[[], RowStore]
    numbers: Callable[[], list[int]]
    refused: Callable[[], list[int]]


def in_memory() -> Iterator[World]:
    store = MemoryStore(refuses=lambda row: not isinstance(row, Deletion) and row["n"] is None)

    def numbers() -> list[int]:
        found: set[int] = set()
        for row in store.rows.get("t", []):
            match row:
                case ("deleted", keys):
                    found.discard(keys["n"])
                case _:
                    found.add(row["n"])
        return sorted(found)

    yield World(lambda: store, numbers, lambda: [row.origin.offset() for row in store.refused])


def on_postgres(dsn: str) -> Iterator[World]:
    database = Database(DatabaseSettings(dsn=SecretStr(dsn)))
    migrate(database)
    stores: list[PostgresRowStore] = []

    def see(query: str) -> list[Any]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return [row[0] for row in cursor.fetchall()] if cursor.description else []

    def connect() -> RowStore:
        stores.append(PostgresRowStore(database, "app", {"in": "id"}))
        return stores[-1]

    see("CREATE TABLE t (n bigint PRIMARY KEY)")
    yield World(
        connect,
        lambda: see("SELECT n FROM t ORDER BY n"),
        lambda: see('SELECT "offset" FROM eosframework.dead_letters ORDER BY id'),
    )
    for store in stores:
        store.close()


@pytest.fixture(params=["memory", "postgres"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        yield from in_memory()
    else:
        yield from on_postgres(request.getfixturevalue("database"))


def batch(claim: Claim, *numbers: Any) -> Batch:
    """A row for each number, from offset to offset; a `Deletion` stands for itself."""
    sink = SinkTable("s.to(t)", "t", TableMode.UPSERT_DELETE, ("n",), None, None, Policy.FAIL)
    first = claim.next_offset or 0
    rows = [n if isinstance(n, Deletion) else {"n": n} for n in numbers]
    origins = [At(b"v", first + i, place=claim.partition) for i in range(len(rows))]
    return Batch(claim, first + len(rows), [TableRows(sink, list(rows), list(origins))])


def test_a_claim_is_numbered_and_knows_no_position_before_the_first_write(world: World) -> None:
    store = world.connect()
    assert store.claim([P1, P0]) == [Claim(P1, 1, None), Claim(P0, 1, None)]
    assert store.claim([P0]) == [Claim(P0, 2, None)]


def test_rows_and_positions_are_written_together(world: World) -> None:
    store = world.connect()
    store.write([batch(claim, 10 * n, 10 * n + 1) for n, claim in enumerate(store.claim([P0, P1]))])
    assert world.numbers() == [0, 1, 10, 11]
    assert world.connect().claim([P0, P1]) == [Claim(P0, 2, 2), Claim(P1, 2, 2)]


def test_a_position_is_stored_without_a_row(world: World) -> None:
    store = world.connect()
    [claim] = store.claim([P0])
    store.write([Batch(claim, 7, [])])
    assert store.claim([P0]) == [Claim(P0, 2, 7)]


def test_a_claim_lasts_from_write_to_write(world: World) -> None:
    store = world.connect()
    [claim] = store.claim([P0])
    store.write([batch(claim, 1)])
    store.write([batch(Claim(P0, claim.epoch, 1), 2)])
    assert world.numbers() == [1, 2]


def test_who_was_overtaken_writes_nothing_and_learns_where(world: World) -> None:
    zombie, successor = world.connect(), world.connect()
    old = zombie.claim([P0, P1])
    [new] = successor.claim([P0])
    successor.write([batch(new, 1)])
    with pytest.raises(Superseded) as caught:
        zombie.write([batch(old[0], 8), batch(old[1], 9)])
    assert list(caught.value.partitions) == [P0]
    assert world.numbers() == [1]
    zombie.write([batch(old[1], 9)])
    assert world.numbers() == [1, 9]


def test_the_same_write_twice_is_done_once(world: World) -> None:
    store = world.connect()
    [claim] = store.claim([P0])
    store.write([batch(claim, 1)])
    with pytest.raises(Superseded):
        store.write([batch(claim, 1)])
    assert store.claim([P0]) == [Claim(P0, 2, 1)]


def test_a_refused_row_is_named_and_holds_everything_back(world: World) -> None:
    store = world.connect()
    claims = store.claim([P0, P1])
    with pytest.raises(RowRefused) as caught:
        store.write([batch(claims[0], 1, 2), batch(claims[1], 3, None, 4)])
    assert (caught.value.partition, caught.value.offset) == (P1, 1)
    assert world.numbers() == []
    store.write([batch(claims[0], 1, 2), batch(claims[1], 3)])
    assert world.numbers() == [1, 2, 3]


def test_a_row_is_deleted_by_its_keys_in_the_order_of_records(world: World) -> None:
    store = world.connect()
    [claim] = store.claim([P0])
    store.write([batch(claim, 1, Deletion({"n": 1}), 2, Deletion({"n": 3}), 4)])
    store.write([batch(Claim(P0, 1, 5), Deletion({"n": 2}))])
    assert world.numbers() == [4]


def test_records_that_gave_no_row_are_kept_with_the_others_rows(world: World) -> None:
    store = world.connect()
    [claim] = store.claim([P0])
    written = batch(claim, 1)
    written.refused.append(RefusedRow("t", At(b"bad", 1), "no row"))
    written.next_offset = 2
    store.write([written])
    assert world.refused() == [1]
    assert store.claim([P0]) == [Claim(P0, 2, 2)]


def test_a_refused_record_is_kept_whatever_bytes_it_came_with(world: World) -> None:
    """PostgreSQL takes no NUL in a text or in jsonb, and no half of a surrogate."""
    store = world.connect()
    [claim] = store.claim([P0])
    written = batch(claim)
    headers = [("n\0ame", b"\0\xff"), ("name", None)]
    error = summary(ValueError("a \0 and a \ud800"))
    written.refused.append(RefusedRow("t", At(b"\0", 0, headers_=headers), error))
    written.next_offset = 1
    store.write([written])
    assert world.refused() == [0]
