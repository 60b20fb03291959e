"""Topics into tables, on a real broker and a real PostgreSQL, when nothing breaks."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.support.applications.pipeline import number_in, wait_until
from tests.support.applications.tables import TablesWorld

MakeTables = Callable[..., TablesWorld]

TRANSFORMED = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to:
      - {topic: NAME.dead, value: json}
      - {table: doubled, model: "tests.support.applications.rows:Number", value: json}
  straight:
    from: numbers
    to:
      - {table: numbers, model: "tests.support.applications.rows:Number"}
      - table: twice
        row: "tests.support.applications.rows:two_rows"
        model: "tests.support.applications.rows:Number"
"""

UPSERTED = """\
application: NAME
sources:
  orders: {topic: NAME.in, key: json, value: "tests.support.applications.rows:Order"}
streams:
  kept:
    from: orders
    to: [{table: shop.orders, mode: upsert_delete, keys: id}]
"""

BAD_ROWS = """\
application: NAME
sources:
  totals: {topic: NAME.in, key: bytes, value: json}
streams:
  kept:
    from: totals
    on_error: POLICY
    to: [{table: totals, mode: upsert, keys: id, model: "tests.support.applications.rows:Total"}]
"""


@pytest.mark.exhaustive
@pytest.mark.every_provider
def test_a_restarted_worker_goes_on_where_the_table_ends(make_tables: MakeTables) -> None:
    world = make_tables()
    world.see("CREATE TABLE numbers (n bigint)")
    world.apply()
    world.feed(3000)
    worker = world.start_worker()
    world.wait_for(1)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    world.feed(1000)
    world.finish()
    assert world.kept().clean, world.kept()
    assert world.count() == 4000


def test_transforms_and_tables_run_under_one_command_and_each_row_is_there_once(
    make_tables: MakeTables,
) -> None:
    world = make_tables(topology=TRANSFORMED)
    world.apply()
    world.feed(1000)
    keep_nothing = ["database.keep_rows_seconds=0"]
    worker = world.start_worker(settings=keep_nothing)
    world.wait_for(1000)
    world.wait_for(1000, "doubled")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    world.feed(500)
    worker = world.start_worker(settings=keep_nothing, until_caught_up=True)
    assert worker.wait() == 0, worker.log[-3000:]
    for table, factor in (("numbers", 1), ("doubled", 2)):
        assert world.kept(table, factor).clean, world.kept(table, factor)
    twice = Counter(n for (n,) in world.see("SELECT n FROM twice"))
    assert twice == Counter({n: 2 for n in range(1500) if n != 13})
    assert len({number_in(m) for m in world.read(f"{world.name}.dead")}) == 1500
    wait_until(lambda: world.removed(f"{world.name}-doubled-rows") >= 1000, "rows that are removed")
    audited = world.run("audit", "--json")
    assert audited.exit_code == 0, audited.err
    assert any("table doubled are not compared" in note for note in audited.json["notes"])


def test_rows_are_replaced_and_deleted_by_their_keys(make_tables: MakeTables) -> None:
    world = make_tables(topology=UPSERTED, partitions=1)
    world.apply()

    def order(number: int, amount: str) -> dict[str, object]:
        at = "2013-01-01T05:17:00.123456Z"
        return {"id": number, "customer": "é", "amount": amount, "at": at, "tags": ["a,b", ""]}

    world.produce(order(1, "1.10"), order(1, "12345678901234567890.01"), key=b"1")
    world.produce(order(2, "5"), None, key=b"2")
    world.produce(order(3, "7"), None, order(3, "8"), key=b"3")
    world.finish()
    at = datetime(2013, 1, 1, 5, 17, 0, 123456, UTC)
    assert world.see("SELECT * FROM shop.orders ORDER BY id") == [
        (1, "é", Decimal("12345678901234567890.01"), at, ["a,b", ""]),
        (3, "é", Decimal(8), at, ["a,b", ""]),
    ]


GOOD_AND_BAD = [
    {"id": 1, "note": "a"},
    {"id": 2, "note": None},
    {"id": "three", "note": "b"},
    b"no json",
    {"id": 4, "nope": "c", "note": "d"},
    {"id": 5, "note": "e"},
]


def test_refused_rows_are_kept_and_hold_no_other_up(make_tables: MakeTables) -> None:
    world = make_tables(topology=BAD_ROWS.replace("POLICY", "{dead_letter: NAME.dead}"))
    world.apply()
    world.produce(*GOOD_AND_BAD)
    world.finish()
    assert world.see("SELECT id, note FROM totals ORDER BY id") == [(1, "a"), (5, "e")]
    letters = world.see(
        'SELECT "offset", table_name, error FROM eosframework.dead_letters ORDER BY "offset"'
    )
    assert [letter[0] for letter in letters] == [1, 2, 3, 4]
    assert [letter[1] for letter in letters] == ["totals", "totals", "", "totals"]
    assert "null" in letters[0][2]
    assert "nope" in letters[3][2]


def test_a_refused_row_stops_the_worker_after_what_comes_before_it(
    make_tables: MakeTables,
) -> None:
    world = make_tables(topology=BAD_ROWS.replace("POLICY", "fail"))
    world.apply()
    world.produce(*GOOD_AND_BAD)
    worker = world.start_worker()
    assert worker.wait() == 1, worker.log[-3000:]
    said = f"error: table totals refuses the row of record {world.source}[0]@1"
    assert said in worker.log
    assert "Traceback" not in worker.log
    assert world.see("SELECT id FROM totals") == [(1,)]


def complaints(world: TablesWorld) -> set[tuple[str, str]]:
    """What the doctor finds: about what, and what it is."""
    checks = ("missing-topics", "internal-topics", "topic-and-group-acls", "not-checked")
    found = world.run("doctor", "--json").json["findings"]
    return {(row["about"], row["found"]) for row in found if row["check"] in checks}


def test_what_is_missing_is_planned_refused_and_made(make_tables: MakeTables) -> None:
    world = make_tables(topology=TRANSFORMED)
    world.see("CREATE TABLE twice (n bigint)")
    planned = world.run("plan", "--json").json
    assert {t["name"]: t["create"] for t in planned["database"]["tables"]} == {
        "doubled": True,
        "numbers": True,
        "twice": False,
    }
    rows = f"{world.name}-doubled-rows"
    [own] = [t for t in planned["topics"] if t["name"] == rows]
    assert (own["create"], own["partitions"]) == (True, world.partitions)
    assert f"Group {world.name}:tables: Read" in planned["acls"]
    assert f"Topic {rows}: Read, Write, Delete" in planned["acls"]
    assert (f"topic {rows}", "does not exist") in complaints(world)
    world.apply()
    assert not [about for about, _ in complaints(world) if rows in about]
    world.see(
        "ALTER TABLE doubled DROP COLUMN n; ALTER TABLE doubled ADD n boolean; DROP TABLE twice"
    )
    refused = world.run("run-worker", "--until-caught-up")
    assert refused.exit_code == 2
    assert "table doubled: column n is boolean, which does not hold" in refused.error
    assert "table twice (n BIGINT)" in refused.error
    assert "eosframework apply" in refused.error
    assert world.see("SELECT count(*) FROM numbers") == [(0,)]
