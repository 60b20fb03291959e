"""Rows and positions in a real PostgreSQL: together or not at all, by the newest claim only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import permutations
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import BaseModel

from eosframework.errors import RowRefused, StartRefused, Superseded
from eosframework.postgres.database.tables.copy_rows import TableCopy
from eosframework.postgres.database.tables.table_sink import (
    StoredPosition,
    store_positions,
    stored_positions,
)
from eosframework.postgres.tables.table_ports import Batch, Claim, Deletion, TableRows
from eosframework.topology.graph.graph import Policy, TableMode
from tests.support.memory.scripted_kafka import At
from tests.support.servers.row_stores import P0, P1, World, batch, sink, written

WAITING = """
SELECT 1 FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
"""Somebody in this database waits for a lock; other tests have theirs on the same server."""


@pytest.fixture
def world(database: str) -> Any:
    world = World(database)
    world.see("CREATE TABLE t (id integer PRIMARY KEY, name text NOT NULL, note text)")
    yield world
    for store in world.stores:
        store.close()


def names(world: World) -> list[tuple[int, str]]:
    return world.see("SELECT id, name FROM t ORDER BY id")


def test_rows_and_positions_appear_together(world: World) -> None:
    store = world.store()
    [claim] = store.claim([P0])
    assert (claim.epoch, claim.next_offset) == (1, None)
    store.write([batch(claim, sink("t"), {"id": 1, "name": "a"}, {"id": 2, "name": "b"})])
    assert names(world) == [(1, "a"), (2, "b")]
    assert world.store().claim([P0, P1]) == [Claim(P0, 2, 2), Claim(P1, 1, None)]


def test_several_tables_take_the_rows_of_a_record_together(world: World) -> None:
    world.see("CREATE TABLE u (id integer CHECK (id <> 3), name text)")
    store = world.store()
    [claim] = store.claim([P0])
    good, bad = {"id": 1, "name": "a"}, {"id": 3, "name": "c"}
    origins = [At(b"v", 0), At(b"v", 1)]
    tables = [TableRows(sink(name), [good, bad], [*origins]) for name in ("t", "u")]
    with pytest.raises(RowRefused, match=r"table u refuses .*@1"):
        store.write([Batch(claim, 2, tables)])
    counts = "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u)"
    assert world.see(counts) == [(0, 0)]
    store.write([Batch(claim, 2, tables).up_to(1)])
    assert world.see(counts) == [(1, 1)]


def test_a_zombie_writes_nothing(world: World) -> None:
    zombie, successor = world.store(), world.store()
    old = zombie.claim([P0, P1])
    [new] = successor.claim([P0])
    successor.write([batch(new, sink("t"), {"id": 1, "name": "successor"})])
    with pytest.raises(Superseded) as caught:
        zombie.write([batch(claim, sink("t"), {"id": 9, "name": "zombie"}) for claim in old])
    assert list(caught.value.partitions) == [P0]
    assert names(world) == [(1, "successor")]
    zombie.write([batch(old[1], sink("t"), {"id": 2, "name": "still its own"})])
    assert names(world) == [(1, "successor"), (2, "still its own")]


def test_a_write_that_was_done_before_is_not_done_again(world: World) -> None:
    store = world.store()
    [claim] = store.claim([P0])
    again = batch(claim, sink("t", TableMode.UPSERT, ("id",)), {"id": 1, "name": "a"})
    store.write([again])
    with pytest.raises(Superseded):
        store.write([again])


def test_a_claim_waits_for_a_transaction_in_doubt(world: World) -> None:
    store = world.store()
    [claim] = store.claim([P0])
    with psycopg.connect(world.dsn) as doubtful:
        doubtful.execute("UPDATE eosframework.positions SET next_offset = 7")
        seen = world.see("SELECT next_offset FROM eosframework.positions")
        waiting = _in_thread(lambda: world.store().claim([P0]))
        _until(lambda: bool(world.see(WAITING)))
        doubtful.commit()
    assert seen == [(None,)]
    assert waiting() == [Claim(P0, claim.epoch + 1, 7)]


def test_upserts_and_deletions_leave_the_newest_row_of_each_key(world: World) -> None:
    store = world.store()
    [claim] = store.claim([P0])
    upsert = sink("t", TableMode.UPSERT_DELETE, ("id",))
    rows = [
        {"id": 1, "name": "old"},
        {"id": 2, "name": "gone"},
        {"id": 1, "name": "new"},
        Deletion({"id": 2}),
        {"id": 3, "name": "x", "note": "n"},
        Deletion({"id": 4}),
        {"id": 3, "name": "y"},
    ]
    store.write([batch(claim, upsert, *rows)])
    assert world.see("SELECT id, name, note FROM t ORDER BY id") == [
        (1, "new", None),
        (3, "y", "n"),
    ]


def test_rows_of_as_many_columns_in_another_order_or_with_others_keep_each_its_own(
    world: World,
) -> None:
    world.see("ALTER TABLE t ALTER name SET DEFAULT 'unnamed'")
    store = world.store()
    [claim] = store.claim([P0])
    store.write([batch(claim, sink("t"), {"id": 1, "name": "a"}, {"name": "b", "id": 2})])
    [claim] = store.claim([P0])
    store.write([batch(claim, sink("t"), {"id": 3, "name": "c"}, {"id": 4, "note": "d"})])
    assert world.see("SELECT id, name, note FROM t ORDER BY id") == [
        (1, "a", None),
        (2, "b", None),
        (3, "c", None),
        (4, "unnamed", "d"),
    ]


class Everything(BaseModel):
    id: int
    amount: Decimal
    at: datetime
    who: UUID
    raw: bytes
    tags: list[str]
    doc: dict[str, Any]
    flag: bool
    ratio: float


def test_values_of_every_type_come_back_as_they_were(world: World) -> None:
    world.see(
        "CREATE TABLE kinds (id bigint PRIMARY KEY, amount numeric, at timestamptz, who uuid, "
        "raw bytea, tags text[], doc jsonb, flag boolean, ratio double precision)"
    )
    row = Everything(
        id=2**53 + 1,
        amount=Decimal("12345678901234567890.000000000000001"),
        at=datetime(2013, 1, 1, 5, 17, 0, 123456, UTC),
        who=UUID(int=7),
        raw=b"\x00\xff\\x'",
        tags=["a,b", "{}", "", 'q"'],
        doc={"n": [1, None, {"deep": "\u00e9\n"}]},
        flag=True,
        ratio=0.1,
    )
    store = world.store()
    [claim] = store.claim([P0])
    store.write([batch(claim, sink("kinds"), row)])
    [claim] = store.claim([P0])
    texts = {
        "id": 2,
        "amount": 0.5,
        "at": "2013-01-01T05:17:00Z",
        "who": str(UUID(int=8)),
        "tags": [],
        "doc": "text",
    }
    store.write([batch(claim, sink("kinds", TableMode.UPSERT, ("id",)), texts)])
    [json, model] = world.see("SELECT * FROM kinds ORDER BY id")
    assert dict(zip(Everything.model_fields, model, strict=True)) == row.model_dump()
    assert json[:4] == (2, Decimal("0.5"), datetime(2013, 1, 1, 5, 17, tzinfo=UTC), UUID(int=8))
    assert json[5:7] == ([], "text")


BAD = [{"id": n, "name": None if n == 5 else "ok"} for n in range(1, 9)]


def test_a_refused_row_is_named_and_nothing_is_written(world: World) -> None:
    store = world.store()
    [claim] = store.claim([P0])
    with pytest.raises(RowRefused, match=r"table t refuses the row of record in\[0\]@4: .*null"):
        store.write([batch(claim, sink("t"), *BAD)])
    assert names(world) == []
    store.write([batch(claim, sink("t"), *BAD[:4])])
    assert len(names(world)) == 4


@pytest.mark.parametrize("policy", [Policy.SKIP, Policy.DEAD_LETTER])
@pytest.mark.parametrize("mode", [TableMode.APPEND, TableMode.UPSERT])
def test_a_refused_row_loses_no_other(world: World, policy: Policy, mode: TableMode) -> None:
    keys = ("id",) if mode is TableMode.UPSERT else ()
    bad = [
        *BAD,
        {"id": 9, "nmae": "misspelt"},
        {"id": 10, "name": "nul \0"},
        {"id": [], "name": ""},
    ]
    store = world.store()
    [claim] = store.claim([P0])
    written = store.write([batch(claim, sink("t", mode, keys, policy), *bad)])
    assert [n for n, _ in names(world)] == [1, 2, 3, 4, 6, 7, 8]
    letters = world.see(
        'SELECT table_name, topic, "offset", value, headers FROM eosframework.dead_letters'
    )
    if policy is Policy.SKIP:
        assert (written.skipped, letters) == (4, [])
    else:
        assert written.dead_letters == 4
        assert sorted(letter[2] for letter in letters) == [4, 8, 9, 10]
        assert letters[0][0:2] == ("t", "in")
        assert letters[0][3:] == (b"v", [["h", "x"]])


def test_a_deferred_constraint_is_checked_while_the_row_can_be_named(world: World) -> None:
    world.see("CREATE TABLE part (id int, t int REFERENCES t (id) DEFERRABLE INITIALLY DEFERRED)")
    store = world.store()
    [claim] = store.claim([P0])
    with pytest.raises(RowRefused, match=r"@1: .*foreign key"):
        store.write([batch(claim, sink("part"), {"id": 1, "t": None}, {"id": 2, "t": 3})])


def test_a_topic_made_again_is_refused(world: World) -> None:
    store = world.store()
    [claim] = store.claim([P0])
    store.write([batch(claim, sink("t"), {"id": 1, "name": "a"})])
    with pytest.raises(StartRefused, match="deleted and created again"):
        world.store("another").claim([P0])
    assert store.claim([P0])[0].epoch == 2


def test_a_position_that_is_set_is_taken_from_whoever_writes_by_it(world: World) -> None:
    store = world.store()
    claims = store.claim([P0, P1])
    store.write([batch(claim, sink("t"), {"id": claim.epoch, "name": "a"}) for claim in claims[:1]])
    store_positions(world.database, "app", [StoredPosition(P0, "another", 7)])
    with pytest.raises(Superseded):
        store.write([batch(Claim(P0, 1, 1), sink("t"), {"id": 9, "name": "zombie"})])
    assert stored_positions(world.database, "app") == [
        StoredPosition(P0, "another", 7),
        StoredPosition(P1, "id", None),
    ]
    assert world.store("another").claim([P0]) == [Claim(P0, 3, 7)]


def test_a_position_that_is_forgotten_belongs_to_whichever_topic_is_claimed_next(
    world: World,
) -> None:
    store = world.store()
    [claim] = store.claim([P0])
    store.write([batch(claim, sink("t"), {"id": 1, "name": "a"})])
    store_positions(world.database, "app", [StoredPosition(P0, "", None)])
    with pytest.raises(Superseded):
        store.write([batch(Claim(P0, 1, 1), sink("t"), {"id": 9, "name": "zombie"})])
    assert world.store("another").claim([P0]) == [Claim(P0, 3, None)]
    assert stored_positions(world.database, "app") == [StoredPosition(P0, "another", None)]


def _in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return lambda: future.result(60)


def _until(condition: Callable[[], bool]) -> None:
    from tests.support.applications.pipeline import wait_until

    wait_until(condition, "a claim that waits")


def test_types_that_change_while_a_writer_runs_hold_from_its_next_transaction_on(
    world: World,
) -> None:
    world.see("CREATE TABLE r (id integer PRIMARY KEY, rate numeric(4,2), note varchar(3))")
    store, table = world.store(), sink("r", TableMode.UPSERT, ("id",), Policy.SKIP)
    [claim] = store.claim([P0])
    [claim] = written(store, batch(claim, table, {"id": 1, "rate": "0.85", "note": "abc"}))
    world.see("ALTER TABLE r ALTER rate TYPE numeric(18,6), ALTER note TYPE text")
    rows = [{"id": 2, "rate": "0.851234", "note": "longer"}, {"id": 3, "rate": "1.000001"}]
    [claim] = written(store, batch(claim, table, *rows))
    world.see("ALTER TABLE r DROP note, ADD note integer")
    [claim] = written(store, batch(claim, table, {"id": 4, "rate": "0.000001", "note": 7}))
    assert world.see("SELECT id, rate::text, note FROM r ORDER BY id") == [
        (1, "0.850000", None),
        (2, "0.851234", None),
        (3, "1.000001", None),
        (4, "0.000001", 7),
    ]


def test_any_number_of_column_sets_needs_one_temporary_table(world: World) -> None:
    world.see("CREATE TABLE wide (id integer PRIMARY KEY, a int, b int, c int, d int)")
    store, table = world.store(), sink("wide", TableMode.UPSERT_DELETE, ("id",))
    [claim] = store.claim([P0])
    sets = [names for n in range(5) for names in permutations("abcd", n)]
    rows: list[Any] = [{**dict.fromkeys(names, 1), "id": n} for n, names in enumerate(sets)]
    written(store, batch(claim, table, *rows, Deletion({"id": 0})))
    counted = "SELECT count(*), count(a), count(b), count(c), count(d) FROM wide"
    each = sum("a" in names for names in sets)
    assert world.see(counted) == [(len(sets) - 1, each, each, each, each)]
    made = "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'"
    assert world.see(made) == [(1,)]


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize(
    ("kind", "keys", "expected"),
    [
        (
            "text",
            [1, 1.0, True, "1", -0.0, False, "0", "1"],
            {"1": 7, "1.0": 1, "true": 2, "-0.0": 4, "false": 5, "0": 6},
        ),
        ("numeric", [1, 1.0, Decimal("1.00"), "1", -0.0, 0, "0", "1"], {1: 7, 0: 6}),
    ],
)
def test_keys_are_equal_where_the_database_says_so_whatever_the_batch(
    world: World, size: int, kind: str, keys: list[Any], expected: dict[Any, int]
) -> None:
    world.see(f"CREATE TABLE k (key {kind} PRIMARY KEY, n integer)")
    store, table = world.store(), sink("k", TableMode.UPSERT, ("key",))
    [claim] = store.claim([P0])
    rows = [{"key": key, "n": n} for n, key in enumerate(keys)]
    for first in range(0, len(rows), size):
        [claim] = written(store, batch(claim, table, *rows[first : first + size]))
    assert dict(world.see("SELECT key, n FROM k")) == expected


def test_an_error_of_our_own_code_is_no_error_of_a_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise TypeError("a mistake of the framework's")

    store, table = world.store(), sink("t", TableMode.UPSERT, ("id",), Policy.SKIP)
    [claim] = store.claim([P0])
    with monkeypatch.context() as patched:
        patched.setattr(TableCopy, "_upsert", broken)
        with pytest.raises(TypeError, match="a mistake of the framework's"):
            store.write([batch(claim, table, {"id": 1, "name": "a"})])
    [claim] = store.claim([P0])
    written = store.write([batch(claim, table, {"id": 1, "name": "a"}, {"id": 2, "name": {1}})])
    assert (written.skipped, names(world)) == (1, [(1, "a")])


class Moment(BaseModel):
    id: int
    at: datetime
    day: date
    length: timedelta


def test_a_value_means_the_same_whatever_the_database_has_set(world: World) -> None:
    (name,) = world.see("SELECT current_database()")[0]
    for setting in ("timezone = 'America/New_York'", "datestyle = 'SQL, DMY'"):
        world.see(f'ALTER DATABASE "{name}" SET {setting}')
    world.see("CREATE TABLE m (id integer PRIMARY KEY, at timestamptz, day date, length interval)")
    store, noon = world.store(), datetime(2026, 7, 4, 12)
    [claim] = store.claim([P0])
    row = Moment(id=1, at=noon, day=date(2026, 7, 4), length=timedelta(days=-1, seconds=1))
    text = {"id": 2, "at": "2026-07-04T12:00:00", "day": "2026-07-04", "length": "-23:59:59"}
    written(store, batch(claim, sink("m"), row, text))
    seen = "SELECT at AT TIME ZONE 'UTC', day, extract(epoch from length)::int FROM m"
    assert world.see(seen) == [(noon, date(2026, 7, 4), -86399)] * 2


@pytest.mark.parametrize(("encoding", "refused"), [("LATIN1", 1), ("SQL_ASCII", 0)])
def test_texts_are_written_whatever_the_encoding_of_the_database(
    world: World, encoding: str, refused: int
) -> None:
    (name,) = world.see("SELECT current_database()")[0]
    has_providers = int(world.see("SHOW server_version_num")[0][0]) >= 150_000
    world.see(
        f"CREATE DATABASE \"{name}_{encoding}\" ENCODING '{encoding}' TEMPLATE template0 "
        f"LC_COLLATE 'C' LC_CTYPE 'C' {'LOCALE_PROVIDER libc' if has_providers else ''}"
    )
    other = World(f"{make_conninfo(world.dsn, dbname=f'{name}_{encoding}')}")
    other.see("CREATE TABLE t (id integer PRIMARY KEY, name text)")
    store, table = other.store(), sink("t", TableMode.UPSERT, ("id",), Policy.SKIP)
    [claim] = store.claim([P0])
    texts = ["Gruber", "Gr\u00fcber", "\u8c37"]
    rows = [{"id": n, "name": each} for n, each in enumerate(texts)]
    written = store.write([batch(claim, table, *rows)])
    store.close()
    assert written.skipped == refused
    with psycopg.connect(other.dsn, client_encoding="utf8") as connection:
        found = connection.execute("SELECT name FROM t ORDER BY id").fetchall()
    world.see(f'DROP DATABASE "{name}_{encoding}" WITH (FORCE)')
    kept = texts[: len(texts) - refused]
    assert [each if type(each) is str else each.decode() for (each,) in found] == kept
