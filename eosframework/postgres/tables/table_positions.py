"""Where tables go on: the stored positions, shown and set while no worker fills them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from eosframework.errors import DatabaseFault, DatabaseRefused, DatabaseUnusable
from eosframework.postgres.connection import Connection, Database
from eosframework.postgres.error_classes import commit, translating
from eosframework.postgres.queries import load_queries
from eosframework.records import TopicPartition
from eosframework.tables.table_ports import Seen

_queries: Any = load_queries("persisting.sql")


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """A position as the database has it.

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
        DatabaseUnusable: the database cannot be asked, or has no schema yet.
    """
    with _connected(database, f"read positions in {database.display}") as connection:
        rows = list(_queries.known_positions(connection, application=application))
    return [StoredPosition(TopicPartition(*row[:2]), *row[2:]) for row in rows]


def store_positions(
    database: Database, application: str, positions: Sequence[StoredPosition]
) -> None:
    """Set positions, all or none, and take them from whoever still writes by them.

    Raises:
        DatabaseUnusable: whether they are set only the database knows; the same may be done again.
    """
    doing = f"set positions in {database.display}"
    with _connected(database, doing) as connection:
        _queries.set_positions(
            connection,
            application=application,
            topics=[position.partition.topic for position in positions],
            partitions=[position.partition.partition for position in positions],
            topic_ids=[position.topic_id for position in positions],
            next_offsets=[position.next_offset for position in positions],
        )
        commit(connection, doing)


def seen_position(database: Database, application: str, partition: TopicPartition) -> Seen:
    """Look at a position without a claim, to see whether whoever claimed it lives.

    Raises:
        DatabaseAway: nobody answered.
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


@contextmanager
def _connected(database: Database, doing: str) -> Generator[Connection]:
    database.require()
    try:
        with translating(doing), database.connect() as connection:
            yield connection
    except (DatabaseFault, DatabaseRefused) as error:
        raise DatabaseUnusable(str(error)) from error
