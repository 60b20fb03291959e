"""One session of a relay with its database: who may relay which shard, and what is counted there.

A right is an advisory lock: it ends with the session, however that ends. A process that stands
still is still there for TCP, so the server also ends a session that asks nothing for long.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from eosframework.config import OutboxSourceKind
from eosframework.database.connection import Connection, Database
from eosframework.database.queries import load_queries
from eosframework.database.trouble import translating
from eosframework.errors import DatabaseAway, StartRefused
from eosframework.outbox.position import Found, Origin

CHANNEL = "eosframework_outbox"
PLACE = 1_000_000
"""Second half of the lock that counts relays; shards have lower numbers."""

outbox_queries: Any = load_queries("outbox.sql")


class RelaySession:
    """What the sources have in common; a lost connection is DatabaseAway out of every method.

    Args:
        database: where the outbox is.
        name: the relay's.
        shards: into how many the outbox is divided.
        idle_seconds: a session that asks nothing for so long is ended by the server.
        prepare: called before the first session; makes the schema complete.
    """

    def __init__(
        self,
        database: Database,
        name: str,
        shards: int,
        *,
        idle_seconds: float,
        prepare: Callable[[], object],
    ) -> None:
        self.name = name
        self.shards = shards
        self._database = database
        self._idle_seconds = idle_seconds
        self._prepare: Callable[[], object] | None = prepare
        self._relay = zlib.crc32(f"eosframework.relay.{name}".encode())
        self._connection: Connection | None = None
        self._origin = Origin("", 0, "")

    def connect(self) -> None:
        """Begin a session.

        Raises:
            DatabaseAway: nobody answered, or a standby did.
            StartRefused: the source cannot be read as the server is configured.
        """
        self.close()
        if self._prepare is not None:
            self._prepare()
            self._prepare = None
        connection = self._database.connect(autocommit=True)
        try:
            self._begin(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def close(self) -> None:
        """End the session, and with it every right."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def hold(self, shard: int) -> bool:
        """Take the right to relay a shard if nobody has it."""
        with self.doing("take a shard") as connection:
            return outbox_queries.hold(connection, relay=self._key, shard=shard)

    def let_go(self, shard: int) -> None:
        """Give the right to relay a shard to whoever wants it."""
        with self.doing("give a shard up") as connection:
            outbox_queries.let_go(connection, relay=self._key, shard=shard)

    def holds(self, shard: int) -> bool:
        """Ask the database whether this session still has that right."""
        with self.doing("ask for a shard") as connection:
            return outbox_queries.holds(connection, relay_oid=self._relay, shard=shard)

    def relays(self) -> int:
        """Return how many relays of this name have a session, this one included."""
        with self.doing("count relays") as connection:
            return outbox_queries.relays(connection, relay_oid=self._relay, place=PLACE)

    def next_turn(self, shard: int) -> int:
        """Count the shard's turns in the database up by one, durably, and return the count."""
        with self.doing("count a turn") as connection:
            return outbox_queries.next_turn(connection, name=self.name, shard=shard)

    def wait(self, seconds: float) -> None:
        """Return when something was published, or after `seconds`."""
        with self.doing("wait for messages") as connection:
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                pass

    def begin(self, connection: Connection, wal_level: str) -> None:
        """Do what a source needs at the beginning of a session, besides what all need.

        Raises:
            StartRefused: the source cannot be read as the server is configured.
        """

    def described(self, source: OutboxSourceKind, shard: int, *, first: int, last: int) -> Found:
        """Return what the database says about itself, for comparing it with a position."""
        with self.doing("read turns") as connection:
            turn, cleaned = outbox_queries.turn(connection, name=self.name, shard=shard)
        return Found(source.value, self._origin, turn, cleaned, first, last)

    @property
    def _key(self) -> int:
        """The first half of advisory locks, as the signed number that functions take."""
        return self._relay - 2**32 if self._relay >= 2**31 else self._relay

    def _begin(self, connection: Connection) -> None:
        with translating(f"begin a relay's session with {self._database.display}"):
            identifier, timeline, name, is_standby, wal_level, has_outbox = outbox_queries.facts(
                connection
            )
            if is_standby:
                raise DatabaseAway(
                    f"{self._database.display} is a standby, which only follows another server; "
                    f"name the primary in database.dsn, or several hosts with "
                    f"target_session_attrs=read-write"
                )
            if not has_outbox:
                raise StartRefused(
                    f"{self._database.display} has no table eosframework.outbox any more; it was "
                    f"dropped while the relay ran: start the relay again to make it"
                )
            self.begin(connection, wal_level)
            idle = f"{round(self._idle_seconds * 1000)}ms"
            outbox_queries.limit_idleness(connection, idle=idle)
            outbox_queries.take_part(connection, relay=self._key, place=PLACE)
            connection.execute(f"LISTEN {CHANNEL}")
        self._origin = Origin(identifier, timeline, name)

    @property
    def origin(self) -> Origin:
        """Which history of which database the session is with."""
        return self._origin

    @property
    def place(self) -> str:
        """The database, for messages."""
        return self._database.display

    @contextmanager
    def doing(self, what: str) -> Generator[Connection]:
        """Use the connection; whatever it reports ends the session or the relay."""
        if self._connection is None:
            raise DatabaseAway(f"there is no session with {self._database.display}")
        with translating(f"{what} in {self._database.display}"):
            yield self._connection
