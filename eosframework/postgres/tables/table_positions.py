"""Stored positions of table sinks, read and set while no table writer runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from eosframework.postgres.connection import Database
from eosframework.postgres.error_classes import commit, translating
from eosframework.postgres.queries import load_queries
from eosframework.postgres.tables.table_shapes import identifier
from eosframework.records import TopicPartition
from eosframework.tables.table_ports import Seen

_queries: Any = load_queries("table_positions.sql")


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """A position in the database.

    Args:
        topic_id: of the topic that the offset belongs to.
        next_offset: None: nothing was ever written.
    """

    partition: TopicPartition
    topic_id: str
    next_offset: int | None


def stored_positions(database: Database, application: str) -> list[StoredPosition]:
    """Return the positions of an application, sorted.

    Raises:
        DatabaseUnusable: the database is unavailable, or has no schema yet.
    """
    database.require()
    with database.session(f"read positions in {database.display}") as connection:
        rows = list(_queries.known_positions(connection, application=application))
    return [StoredPosition(TopicPartition(*row[:2]), *row[2:]) for row in rows]


def store_positions(
    database: Database,
    application: str,
    positions: Sequence[StoredPosition],
    emptied: Sequence[str] = (),
) -> None:
    """Set positions, all or none, and revoke the claims of running table writers.

    Args:
        database: of the table sinks.
        application: its name.
        positions: to set.
        emptied: tables whose rows are deleted in the same transaction. The positions come first, so
            a table writer that is in a transaction has ended it before rows are deleted.

    Raises:
        DatabaseUnusable: they may or may not be set; repeat the call.
    """
    doing = f"set positions in {database.display}"
    database.require()
    with database.session(doing) as connection:
        _queries.set_positions(
            connection,
            application=application,
            topics=[position.partition.topic for position in positions],
            partitions=[position.partition.partition for position in positions],
            topic_ids=[position.topic_id for position in positions],
            next_offsets=[position.next_offset for position in positions],
        )
        for table in emptied:
            connection.execute(sql.SQL("DELETE FROM {}").format(identifier(table)))
        commit(connection, doing)


def seen_position(database: Database, application: str, partition: TopicPartition) -> Seen:
    """Read a position without a claim, to see whether its owner is alive.

    Raises:
        DatabaseUnavailable: the database is unavailable.
    """
    doing = f"look at a position in {database.display}"
    with translating(doing), database.connect(autocommit=True) as connection:
        return Seen(
            *_queries.seen_position(
                connection,
                application=application,
                topic=partition.topic,
                partition=partition.partition,
            )
        )
