"""A migrated database with a row store, and a plain connection that sees what was written."""

from __future__ import annotations

from typing import Any

import psycopg
from pydantic import BaseModel, SecretStr

from eosframework.config import DatabaseSettings
from eosframework.postgres.database import Database, migrate
from eosframework.postgres.database.tables.table_sink import PostgresRowStore
from eosframework.postgres.tables.table_ports import Batch, Claim, TableRows
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Policy, SinkTable, TableMode
from tests.support.memory.scripted_kafka import At
from tests.support.servers.databases import dsn_with

P0, P1 = TopicPartition("in", 0), TopicPartition("in", 1)


def sink(
    table: str,
    mode: TableMode = TableMode.APPEND,
    keys: tuple[str, ...] = (),
    on_error: Policy = Policy.FAIL,
    model: type[BaseModel] | None = None,
) -> SinkTable:
    return SinkTable(f"s.to({table})", table, mode, keys, None, model, on_error)


def batch(claim: Claim, table: SinkTable, *rows: Any) -> Batch:
    first = claim.next_offset or 0
    origins = [
        At(b"v", first + n, headers_=[("h", b"x")], place=claim.partition) for n in range(len(rows))
    ]
    return Batch(claim, first + len(rows), [TableRows(table, list(rows), list(origins))])


class World:
    """A migrated database, and what a plain connection sees of it."""

    role = ""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.database = Database(DatabaseSettings(dsn=SecretStr(dsn)))
        migrate(self.database)
        self.stores: list[PostgresRowStore] = []
        self.undoing: list[str] = []

    def seen_by(self, role: str, password: str) -> World:
        """Return it as another role sees it; its stores are closed with this one's."""
        other = World(dsn_with(self.dsn, user=role, password=password))
        other.role, other.stores = role, self.stores
        return other

    def store(self, topic_id: str = "id") -> PostgresRowStore:
        store = PostgresRowStore(self.database, "app", {"in": topic_id})
        self.stores.append(store)
        return store

    def see(self, query: str) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []


def written(store: PostgresRowStore, one: Batch) -> list[Claim]:
    """Write a batch of which no row is refused, and claim what comes after it."""
    assert store.write([one]).skipped == 0
    return store.claim([one.claim.partition])
