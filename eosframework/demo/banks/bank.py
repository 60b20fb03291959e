"""One bank: its database, its relays and its workers, each of which may be killed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.demo.banks.bank_reading import Reader
from eosframework.demo.banks.relays import Relays
from eosframework.demo.banks.verdict import Ledgers
from eosframework.demo.files import example_file
from eosframework.demo.kills import Kill
from eosframework.demo.workers import Workers
from eosframework.embedded import PostgresServer, start_postgres
from eosframework.errors import ComponentFailed
from eosframework.postgres import Database, migrate, translating

PROCESSES = 2


class Bank:
    """A bank with a real database of its own.

    Args:
        name: of the bank, its application and its outbox.
        directory: parent of its data and its logs.
        detached: let the database outlive this process.
    """

    def __init__(self, name: str, directory: Path, *, detached: bool) -> None:
        self.name = name
        self.topic = f"{name}.transfers"
        self.server: PostgresServer = start_postgres(directory / name, detached=detached)
        settings = DatabaseSettings(dsn=SecretStr(self.server.dsn))
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
        environment = {"EOS_DATABASE__DSN": self.server.dsn}
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
        pid = self.server.pid
        if pid is None:
            raise ComponentFailed(f"the database of {self.name} ended; see {self.server.log_file}")
        self.server.kill()
        self._deaths += not self.server.running
        self.server.start()
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
            DatabaseAway: the database is unavailable.
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

    def end(self, *, keep: bool) -> None:
        """Kill all remaining processes; with `keep`, all but the database."""
        for part in self._parts():
            part.end()
        if not keep:
            self.server.kill()

    def _parts(self) -> list[Relays | Workers]:
        return [part for part in (self._relays, self._workers) if part is not None]
