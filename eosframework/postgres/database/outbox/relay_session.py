"""One session of a relay with its database: locks on shards, and counters.

A lock is an advisory lock: it ends with the session, however that ends. A suspended process is
still connected for TCP, so the server also ends a session that is idle for long.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from eosframework.config import OutboxSourceKind
from eosframework.errors import DatabaseUnavailable, StartRefused
from eosframework.postgres.database.connection import Connection, Database, load_queries
from eosframework.postgres.database.error_classes import translating
from eosframework.postgres.outbox.relay_position import DatabaseState, Origin

CHANNEL = "eosframework_outbox"
PLACE = 1_000_000
"""Second key of the lock that counts relays; shards have lower numbers."""

NAMES = 0x656F_7372_656C_6179
"""The lock under which a relay is registered."""

MOST_SHARDS = 64
"""The largest value of `outbox.shards`."""

outbox_queries: Any = load_queries("outbox.sql")


class RelaySession:
    """Base of the outbox sources; each method raises DatabaseUnavailable for a lost connection.

    Args:
        database: with the outbox.
        name: the relay's.
        shards: the number of shards of the outbox.
        idle_seconds: the server ends a session that is idle for this time.
        prepare: called before the first session; applies missing migrations.
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
        self.ends_waiting: Callable[[], bool] = lambda: False
        self._database = database
        self._idle_seconds = idle_seconds
        self._prepare: Callable[[], object] | None = prepare
        self._relay = _number_of(name)
        self._connection: Connection | None = None
        self._origin = Origin("", 0, "")

    def connect(self) -> None:
        """Begin a session.

        Raises:
            DatabaseUnavailable: the server did not answer, or is a standby.
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
        """End the session, and with it every lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def lock_shard(self, shard: int) -> bool:
        """Take the lock on a shard if it is free."""
        with self.doing("take a shard") as connection:
            return outbox_queries.lock_shard(connection, relay=self._key, shard=shard)

    def unlock_shard(self, shard: int) -> None:
        """Release the lock on a shard."""
        with self.doing("give a shard up") as connection:
            outbox_queries.unlock_shard(connection, relay=self._key, shard=shard)

    def has_lock(self, shard: int) -> bool:
        """Return whether this session still has the lock on a shard, as the database sees it."""
        with self.doing("ask for a shard") as connection:
            return outbox_queries.has_lock(connection, relay_oid=self._relay, shard=shard)

    def relays(self) -> int:
        """Return how many relays of this name have a session, this one included."""
        with self.doing("count relays") as connection:
            return outbox_queries.relays(connection, relay_oid=self._relay, place=PLACE)

    def next_turn(self, shard: int) -> int:
        """Increment the shard's turn counter in the database, durably, and return it."""
        with self.doing("count a turn") as connection:
            return outbox_queries.next_turn(connection, name=self.name, shard=shard)

    def register(self) -> bool:
        """Register this relay's name in the database; return whether it was new.

        Raises:
            StartRefused: another name is registered, so this relay would send everything once more.
        """
        with self.doing("look for other relays") as connection, connection.transaction():
            outbox_queries.lock_names(connection, key=NAMES)
            is_known = self._is_known(connection)
            if not is_known:
                outbox_queries.make_known(connection, name=self.name)
        return not is_known

    def refuse_second_name(self) -> None:
        """Raise as `register` does, and change nothing."""
        with self.doing("look for other relays") as connection:
            self._is_known(connection)

    def forget(self, name: str) -> None:
        """Delete a relay, which may be this one, from the database."""
        with self.doing("forget a relay") as connection:
            outbox_queries.forget_relay(connection, name=name)

    def known_shards(self) -> int:
        """Return how many shards relays of this name ever took; 0: none."""
        with self.doing("look for shards") as connection:
            return dict(outbox_queries.known_relays(connection)).get(self.name, 0)

    def rivals(self) -> Mapping[str, int]:
        """Return the other names under which the outbox was relayed, with their shards."""
        with self.doing("look for other relays") as connection:
            known = dict(outbox_queries.known_relays(connection))
            return {name: known[name] for name in self.rivals_among(connection, known)}

    def hold_rival(self, name: str, shard: int) -> bool:
        """Take the lock on a shard of another name, if it is free."""
        with self.doing("take a shard") as connection:
            return outbox_queries.lock_shard(
                connection, relay=_signed(_number_of(name)), shard=shard
            )

    def rivals_among(self, connection: Connection, known: Iterable[str]) -> set[str]:
        """Return the known names that read the same source, without this one."""
        others = set(known) - {self.name}
        slots = {slot_name(name, n): name for name in others for n in range(MOST_SHARDS)}
        rows = outbox_queries.slots(connection, names=list(slots)) if slots else ()
        return self.same_source(others, {slots[row[0]] for row in rows})

    def same_source(self, others: set[str], with_slots: set[str]) -> set[str]:
        """Return the other names that read the same source as this relay.

        Args:
            others: their names.
            with_slots: those among them that have replication slots.
        """
        raise NotImplementedError

    def refusal(self, known: Sequence[str]) -> str:
        """Return the message that refuses this relay because of the registered ones."""
        names = ", ".join(map(repr, known))
        return (
            f"the outbox of {self.place} was relayed under the name {names}, and this relay has "
            f"outbox.name={self.name!r}: it would send everything once more that the outbox "
            f"holds. Set outbox.name={known[0]} (EOS_OUTBOX__NAME={known[0]}); relays that share "
            f"the work have one name and outbox.shards. {self.renaming}"
        )

    @property
    def renaming(self) -> str:
        """Advice on another name for the relay, for messages."""
        return (
            f"To go on under the new name, stop the old relay and run `eosframework relay-outbox "
            f"reconcile --yes` with outbox.name={self.name}: it sends what Kafka lacks, sets the "
            f"position, and lets the database forget the old name"
        )

    def wait(self, seconds: float) -> None:
        """Return when a message was published, or after `seconds`."""
        with self.doing("wait for messages") as connection:
            for _ in connection.notifies(timeout=seconds, stop_after=1):
                pass

    @property
    def wants_clean(self) -> bool:
        """True if `clean` makes further reads cheaper."""
        return False

    def begin(self, connection: Connection, wal_level: str) -> None:
        """Prepare the source at the beginning of a session.

        Raises:
            StartRefused: the source cannot be read as the server is configured.
        """

    def described(
        self, source: OutboxSourceKind, shard: int, *, first: int, last: int
    ) -> DatabaseState:
        """Return the database's state, to compare it with a position."""
        with self.doing("read turns") as connection:
            turn, cleaned = outbox_queries.turn(connection, name=self.name, shard=shard)
        return DatabaseState(source.value, self._origin, turn, cleaned, first, last)

    def _is_known(self, connection: Connection) -> bool:
        known = dict(outbox_queries.known_relays(connection))
        if self.name not in known and (others := self.rivals_among(connection, known)):
            raise StartRefused(self.refusal(sorted(others)))
        return self.name in known

    @property
    def _key(self) -> int:
        """The first key of advisory locks, as the signed number that functions take."""
        return _signed(self._relay)

    def _begin(self, connection: Connection) -> None:
        with translating(f"begin a relay's session with {self._database.display}"):
            identifier, timeline, name, is_standby, wal_level, has_outbox = outbox_queries.facts(
                connection
            )
            if is_standby:
                raise DatabaseUnavailable(
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
        """The database and its timeline that the session is connected to."""
        return self._origin

    @property
    def place(self) -> str:
        """The database, for messages."""
        return self._database.display

    @contextmanager
    def doing(self, what: str) -> Generator[Connection]:
        """Use the connection; its errors end the session or the relay."""
        if self._connection is None:
            raise DatabaseUnavailable(f"there is no session with {self._database.display}")
        with translating(f"{what} in {self._database.display}"):
            yield self._connection


def slot_name(name: str, shard: int) -> str:
    """Return the name of a shard's replication slot, in the characters that PostgreSQL allows."""
    mark = zlib.crc32(name.encode())
    return f"eosframework_{name.replace('.', '_')[:32]}_{mark:08x}_{shard}"


def _number_of(name: str) -> int:
    return zlib.crc32(f"eosframework.relay.{name}".encode())


def _signed(number: int) -> int:
    return number - 2**32 if number >= 2**31 else number
