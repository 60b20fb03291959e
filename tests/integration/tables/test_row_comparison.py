"""Rows that a table should have against those it has: random histories, and random faults."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.postgres.database import Database, migrate
from eosframework.postgres.database.tables.copy_rows import TableCopy
from eosframework.postgres.database.tables.row_comparison import ExpectedRows, snapshot
from eosframework.postgres.database.tables.table_shapes import read_shape
from eosframework.postgres.tables.table_ports import Deletion, Row
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Policy, SinkTable, TableMode

COLUMNS = "(k bigint {}, v text, j jsonb, at timestamptz DEFAULT now())"
PARTITIONS = [TopicPartition("in", number) for number in range(3)]
History = list[tuple[TopicPartition, Row]]


def table_of(mode: TableMode) -> SinkTable:
    keys = () if mode is TableMode.APPEND else ("k",)
    return SinkTable("t.to(t)", "t", mode, keys, None, None, Policy.FAIL)


def drawn(chance: random.Random, mode: TableMode) -> History:
    """Records of three partitions in the order in which they were decided.

    With deletions each key has one partition, so the last record of a key is known.
    """
    history: History = []
    for _ in range(chance.randint(1, 60)):
        key = chance.randint(0, 12)
        deletes = mode is TableMode.UPSERT_DELETE
        partition = PARTITIONS[key % 3] if deletes else chance.choice(PARTITIONS)
        value = chance.choice([None, "", "a", "b", "=", "ä"])
        row: Row = {"k": key, "v": value, "j": {"n": chance.randint(0, 2)}}
        if deletes and chance.random() < 0.3:
            row = Deletion({"k": key})
        history.append((partition, row))
    return history


def differing(database: Database, table: SinkTable, history: History) -> dict[str, int]:
    with snapshot(database, "app") as (connection, _):
        expected = ExpectedRows(connection, table)
        for partition, row in history:
            expected.add(partition, [row])
        return dict(expected.differences().totals)


FAULTS = {
    "missing": "DELETE FROM t WHERE ctid = (SELECT ctid FROM t ORDER BY random() LIMIT 1)",
    "changed": "UPDATE t SET v = 'other' WHERE ctid = (SELECT ctid FROM t LIMIT 1)",
    "unexpected": "INSERT INTO t VALUES (99, 'x')",
}
"""By what a table with keys is told of each."""


@pytest.mark.parametrize("mode", TableMode)
@pytest.mark.parametrize("seed", range(3))
def test_what_was_written_is_found_right_and_each_fault_is_found(
    database: str, mode: TableMode, seed: int
) -> None:
    chance = random.Random(f"{mode} {seed}")
    table = table_of(mode)
    history = drawn(chance, mode)
    of_database = Database(DatabaseSettings(dsn=SecretStr(database)))
    migrate(of_database)
    with psycopg.connect(database) as writing:
        unique = "PRIMARY KEY" if table.keys else ""
        writing.execute(sql.SQL("CREATE TABLE t {}").format(sql.SQL(COLUMNS.format(unique))))
        shape = read_shape(writing, "t")
        assert shape is not None
        copy = TableCopy(table, shape, 1)
        for _, row in history:
            copy.write(writing, [row])
    assert differing(of_database, table, history) == {}
    with psycopg.connect(database, autocommit=True) as hand:
        rows: Any = hand.execute("SELECT count(*) FROM t").fetchone()
        if not rows[0]:
            return
        for kind, fault in FAULTS.items():
            hand.execute("CREATE TABLE kept AS SELECT * FROM t")
            hand.execute(fault.encode())
            found = differing(of_database, table, history)
            appended = {"changed": {"missing": 1, "unexpected": 1}}.get(kind, {kind: 1})
            assert found == ({kind: 1} if table.keys else appended), (kind, seed)
            hand.execute("TRUNCATE t")
            hand.execute("INSERT INTO t SELECT * FROM kept")
            hand.execute("DROP TABLE kept")
