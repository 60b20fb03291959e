"""One bank: its database, relays and workers, each of which may be killed, and its books."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.demo.banks.bank_books import Books
from eosframework.demo.banks.ledgers import Entry, Ledgers
from eosframework.demo.banks.relays import Relays
from eosframework.demo.files import example_file
from eosframework.demo.kills import Kill
from eosframework.demo.workers import Workers
from eosframework.embedded import PostgresServer
from eosframework.errors import ComponentFailed, DatabaseUnavailable
from eosframework.postgres import Database, migrate, translating

T = TypeVar("T")

PROCESSES = 2


class Bank:
    """A bank with a real database of its own.

    Args:
        name: of the bank, its application and its outbox.
        directory: of its logs.
        server: its database.
    """

    def __init__(self, name: str, directory: Path, server: PostgresServer) -> None:
        self.name = name
        self.topic = f"{name}.transfers"
        self._server = server
        settings = DatabaseSettings(dsn=SecretStr(server.dsn))
        self.database = Database(settings, application_name=f"eosframework demo of {name}")
        self._directory = directory
        self._relays: Relays | None = None
        self._workers: Workers | None = None
        self._deaths = 0

    def make_tables(self, accounts: Mapping[str, int]) -> None:
        """Create the tables of the example and of eosframework, and accounts with balances."""
        migrate(self.database)
        tables = example_file("transfer", "tables.sql").read_bytes()
        with (
            translating(f"make the tables of {self.name}"),
            self.database.connect(autocommit=True) as connection,
        ):
            connection.execute(tables)
            connection.execute(
                "INSERT INTO accounts SELECT * FROM unnest(%s::text[], %s::bigint[])",
                [list(accounts), list(accounts.values())],
            )

    def open(self, bootstrap_servers: str) -> None:
        """Start relays and workers."""
        environment = {"EOS_DATABASE__DSN": self._server.dsn}
        self._relays = Relays(self.name, bootstrap_servers, self._directory, environment)
        self._workers = Workers(
            example_file("transfer", f"{self.name}.yaml"),
            bootstrap_servers,
            PROCESSES,
            self._directory / f"{self.name}.workers.log",
            environment,
        )

    def require_running(self) -> None:
        """Check that relays and workers run.

        Raises:
            ComponentFailed: one of them ended by itself.
        """
        for part in self._parts():
            part.require_running()

    @property
    def is_at_work(self) -> bool:
        """True once all relays have found the database, and workers have tasks."""
        if self._relays is None or self._workers is None:
            return False
        return self._relays.are_up() and self._workers.are_at_work()

    def kill_worker(self, chance: random.Random) -> Kill | None:
        """SIGKILL a worker with tasks; its supervisor replaces it. None: no worker has tasks."""
        return None if self._workers is None else self._workers.kill_one(chance)

    def kill_relay(self) -> Kill | None:
        """SIGKILL the active relay, and start another. None: no relay is active."""
        return None if self._relays is None else self._relays.kill_one()

    def kill_database(self) -> Kill | None:
        """SIGKILL every process of the database, and start it again on its data.

        None: relays or workers are starting, which fails without a database.

        Raises:
            ComponentFailed: the database does not start again.
        """
        if not self.is_at_work:
            return None
        pid = self._server.pid
        if pid is None:
            raise ComponentFailed(f"the database of {self.name} ended; see {self._server.log_file}")
        self._server.kill()
        self._deaths += not self._server.running
        self._server.start()
        return Kill(pid, f"the database of {self.name}", ("whatever was open",))

    def deaths_seen(self) -> int:
        """Number of observed deaths: workers by their supervisor, others by this process."""
        relays = 0 if self._relays is None else self._relays.deaths_seen
        workers = 0 if self._workers is None else self._workers.deaths_seen()
        return self._deaths + relays + workers

    def reader(self) -> Reader:
        """Return a new reader of its books."""
        return Reader(self.name, self.database)

    def ledgers(self) -> Ledgers:
        """Return its current accounts and ledgers, line by line.

        Raises:
            DatabaseUnavailable: the database is unavailable.
        """
        with closing(self.reader()) as reader:
            return reader.ledgers()

    def close(self) -> None:
        """Stop relays and workers in order.

        Raises:
            ComponentFailed: one of them failed while stopping.
        """
        for part in self._parts():
            part.stop()

    def end(self) -> None:
        """Kill all remaining relays and workers."""
        for part in self._parts():
            part.end()

    def _parts(self) -> list[Relays | Workers]:
        return [part for part in (self._relays, self._workers) if part is not None]


_BOOKS = b"""
SELECT (SELECT coalesce(sum(balance), 0)::bigint FROM accounts), left_.*, arrived.*
FROM (SELECT array_agg(id::text), array_agg(amount) FROM debits) AS left_,
     (SELECT array_agg(id::text), array_agg(amount) FROM credits) AS arrived
"""

_LEDGERS = b"""
SELECT (SELECT json_object_agg(id, balance) FROM accounts),
       (SELECT json_agg(json_build_array(id, debited, credited, amount) ORDER BY number)
        FROM debits),
       (SELECT json_agg(json_build_array(id, debited, credited, amount) ORDER BY number)
        FROM credits)
"""


class BankConnection:
    """A connection to a bank, opened again after an outage."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Any = None

    def use(self, what: str, function: Callable[[Any], T]) -> T:
        """Call a function with the connection.

        Args:
            what: description of the call, for messages.
            function: takes the connection.

        Raises:
            DatabaseUnavailable: the database is unavailable, or the outcome is unknown; call again.
        """
        try:
            with translating(what):
                if self._connection is None:
                    self._connection = self._database.connect(autocommit=True)
                return function(self._connection)
        except DatabaseUnavailable:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Reader(BankConnection):
    """Reads one bank's database; each read is one statement, thus one snapshot."""

    def __init__(self, bank: str, database: Database) -> None:
        super().__init__(database)
        self._bank = bank

    def books(self) -> Books:
        """Return the current books.

        Raises:
            DatabaseUnavailable: the database is unavailable; call again.
        """
        balance, out_ids, out_amounts, in_ids, in_amounts = self._row(_BOOKS)
        return Books(
            self._bank,
            balance,
            dict(zip(out_ids or (), out_amounts or (), strict=True)),
            dict(zip(in_ids or (), in_amounts or (), strict=True)),
        )

    def ledgers(self) -> Ledgers:
        """Return the current accounts and ledgers, line by line.

        Raises:
            DatabaseUnavailable: the database is unavailable; call again.
        """
        accounts, debits, credits_ = self._row(_LEDGERS)
        return Ledgers(
            accounts or {},
            [Entry(*line) for line in debits or ()],
            [Entry(*line) for line in credits_ or ()],
        )

    def _row(self, query: bytes) -> Any:
        what = f"read the books of {self._bank}"
        return self.use(what, lambda connection: connection.execute(query).fetchone())
