"""One bank: its database, relays and workers, each of which may be killed, and its books.

Money circulates between two banks while their processes are killed. Two independent judges know
nothing of the way of a transfer: an examiner compares both banks' books all the time, and the
verdict compares the ledgers at the end.

The invariant between two banks at every moment, checked on consecutive snapshots.
A transfer is debited at one bank, is in transit, and is credited at the other. No snapshot covers
both banks, so the books of one are taken between two of the other's:

    first (bank Y, t1)   between (bank X, t2)   last (bank Y, t3),   t1 < t2 < t3

A credited transfer was debited earlier, and ledgers only grow, so

    I1  credits(Y, t1) ⊆ debits(X, t2)
    I2  credits(X, t2) ⊆ debits(Y, t3)
    I3  debits(Y, t1)  ⊆ debits(Y, t3)

and the transfers in transit, seen from these moments, are the two set differences. In each sample
the total equals the opening total, to the cent:

    M   balance(X, t2) + balance(Y, t1) - Σ(debits(Y, t3) ∖ debits(Y, t1))
        + Σ(debits(X, t2) ∖ credits(Y, t1)) + Σ(debits(Y, t3) ∖ credits(X, t2))  =  start

Proof. In each snapshot of a bank, balance = opening - Σ debits + Σ credits. With I1 to I3 the sum
of a difference is the difference of the sums, and M becomes

    opening(X) - Σ debits(X, t2) + Σ credits(X, t2)
    + opening(Y) - Σ debits(Y, t1) + Σ credits(Y, t1) - Σ debits(Y, t3) + Σ debits(Y, t1)
    + Σ debits(X, t2) - Σ credits(Y, t1) + Σ debits(Y, t3) - Σ credits(X, t2)
    = opening(X) + opening(Y).

Two snapshots are not enough: the later one may contain credits of transfers that the earlier one
had not debited yet. The differences are of *ids*, so a transfer credited twice is surplus money,
and not one debit fewer in transit.
"""

from __future__ import annotations

import random
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import SecretStr

from eosframework.config import DatabaseSettings
from eosframework.demo.feeds import example_file
from eosframework.demo.services import Duty, Kill, Service, Workers
from eosframework.embedded import PostgresServer
from eosframework.errors import ComponentFailed, DatabaseUnavailable
from eosframework.postgres.database import Database, migrate, translating

_NAMED = 3
"""Number of wrong ids that a finding lists."""


@dataclass(frozen=True, slots=True)
class Books:
    """One snapshot of a bank.

    Args:
        balance: sum over all accounts.
        debits: amounts of debited transfers by id.
        credits: amounts of credited transfers by id.
    """

    bank: str
    balance: int
    debits: Mapping[str, int]
    credits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """The result of three snapshots.

    Args:
        on_the_way: amounts of transfers in transit, by id.
        money: total in both banks and in transit.
        findings: violations of the invariant.
    """

    debited: int
    credited: int
    on_the_way: Mapping[str, int]
    money: int
    findings: tuple[str, ...]


def examine(first: Books, between: Books, last: Books, start: int) -> Sample:
    """Check the invariant on three consecutive snapshots.

    Args:
        first: of one bank.
        between: of the other, taken later.
        last: of the first one again, taken later still.
        start: opening total of both banks.
    """
    on_the_way = {
        id_: amount
        for sender, receiver in ((between, first), (last, between))
        for id_, amount in sender.debits.items()
        if id_ not in receiver.credits
    }
    meanwhile = sum(amount for id_, amount in last.debits.items() if id_ not in first.debits)
    money = between.balance + first.balance - meanwhile + sum(on_the_way.values())
    findings = [
        *_beyond(first.credits, between.debits, f"credited at {first.bank}", between.bank),
        *_beyond(between.credits, last.debits, f"credited at {between.bank}", last.bank),
        *_beyond(first.debits, last.debits, f"debited at {first.bank} before", last.bank),
    ]
    if money != start:
        findings.append(
            f"{abs(money - start)} {'too much' if money > start else 'missing'}: "
            f"{between.balance} at {between.bank}, {first.balance - meanwhile} at {first.bank} and "
            f"{sum(on_the_way.values())} on the way make {money}, not {start}"
        )
    return Sample(
        debited=len(between.debits) + len(last.debits),
        credited=len(between.credits) + len(last.credits),
        on_the_way=on_the_way,
        money=money,
        findings=tuple(findings),
    )


def _beyond(inner: Mapping[str, int], outer: Mapping[str, int], what: str, bank: str) -> list[str]:
    """Return a finding for ids of `inner` that `outer` lacks."""
    wrong = sorted(inner.keys() - outer.keys())
    if not wrong:
        return []
    named = ", ".join(wrong[:_NAMED]) + (", …" if len(wrong) > _NAMED else "")
    return [f"{len(wrong)} transfers {what} and not debited at {bank}: {named}"]


_RELAYS = 2


@dataclass(slots=True)
class _Relay:
    """A running relay and its shards."""

    service: Service
    duty: Duty = field(init=False)
    is_up: bool = False

    def __post_init__(self) -> None:
        self.duty = Duty(self.service.pid)

    def read_log(self) -> None:
        """Update its shards from new log events."""
        for event in self.service.new_events():
            match event.get("event"):
                case "shard_assigned":
                    id_ = event["transactional_id"]
                    self.duty.take(id_, id_, event["timestamp"])
                    self.is_up = True
                case "relay_stands_by":
                    self.is_up = True
                case "database_unavailable" | "shard_given_up":
                    self.duty.tasks.clear()
                case _:
                    pass


class _Relays:
    """Two processes of `eosframework relay-outbox`, which end with this process in any case.

    Args:
        bank: name of the outbox.
        bootstrap_servers: cluster of its topic.
        directory: of their logs.
        environment: settings that must not appear in the command line.
    """

    def __init__(
        self, bank: str, bootstrap_servers: str, directory: Path, environment: Mapping[str, str]
    ) -> None:
        self.deaths_seen = 0
        self._bank = bank
        self._arguments = ["relay-outbox", "--set", f"outbox.name={bank}"]
        self._arguments += ["--set", f"kafka.bootstrap_servers={bootstrap_servers}"]
        self._directory = directory
        self._environment = environment
        self._relays: list[_Relay] = []
        for number in range(_RELAYS):
            self._relays.append(self._started(number))

    def require_running(self) -> None:
        """Check that all relays run.

        Raises:
            ComponentFailed: one ended; with its exit code and last log lines.
        """
        for relay in self._relays:
            relay.service.require_running()

    def kill_one(self) -> Kill | None:
        """SIGKILL the active relay and start another; None if none is active."""
        for number, relay in enumerate(self._relays):
            relay.read_log()
            if relay.duty.is_at_work:
                self.deaths_seen += relay.service.end() == -signal.SIGKILL
                kill = Kill(relay.duty.pid, self._name(number), tuple(relay.duty.tasks))
                self._relays[number] = self._started(number)
                return kill
        return None

    def are_up(self) -> bool:
        """Return whether all have found their database; one that starts without it would end."""
        for relay in self._relays:
            relay.read_log()
        return all(relay.is_up for relay in self._relays)

    def stop(self) -> None:
        """SIGTERM all of them and wait until they have ended.

        Raises:
            ComponentFailed: one did not end in time, or failed.
        """
        for relay in self._relays:
            relay.service.ask_to_stop()
        for relay in self._relays:
            relay.service.stop()

    def end(self) -> None:
        """Kill all remaining processes."""
        for relay in self._relays:
            relay.service.end()

    def _started(self, number: int) -> _Relay:
        log_file = self._directory / f"{self._bank}.relay{number}.log"
        name = self._name(number)
        return _Relay(Service(name, self._arguments, log_file, self._environment))

    def _name(self, number: int) -> str:
        return f"relay {number} of {self._bank}"


class Entry(NamedTuple):
    """A line of a ledger."""

    id: str
    debited: str
    credited: str
    amount: int


@dataclass(frozen=True, slots=True)
class Ledgers:
    """A bank at rest.

    Args:
        accounts: balances by account.
        debits: outgoing transfers, in order.
        credits: incoming transfers, in order.
    """

    accounts: Mapping[str, int]
    debits: Sequence[Entry]
    credits: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of the ledgers of two banks.

    Args:
        transfers: number of debited transfers.
        lost: ids debited and not credited, or confirmed to a teller and in no ledger.
        duplicated: ids credited more than once.
        invented: ids credited without an equal debit, or refused and debited.
        reordered: accounts whose transfers were credited in another order than debited.
        misbooked: accounts whose balance differs from opening balance, debits and credits.
        money: total of both banks.
    """

    transfers: int
    lost: Sequence[str]
    duplicated: Sequence[str]
    invented: Sequence[str]
    reordered: Sequence[str]
    misbooked: Sequence[str]
    money: int

    @property
    def clean(self) -> bool:
        """True if each transfer took effect once, and in order."""
        return not any(names for names in self.wrong().values())

    def wrong(self) -> dict[str, Sequence[str]]:
        """Return the faults by kind."""
        return {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "invented": self.invented,
            "reordered": self.reordered,
            "misbooked": self.misbooked,
        }


def judge(
    banks: tuple[Ledgers, Ledgers],
    opening: Mapping[str, int],
    confirmed: Set[str],
    refused: Set[str] = frozenset(),
) -> Verdict:
    """Compare the ledgers of two banks with each other, and with their balances.

    Args:
        banks: both.
        opening: opening balances of all accounts of both.
        confirmed: ids confirmed to a teller.
        refused: ids refused to a teller.
    """
    debited = {entry.id: entry for bank in banks for entry in bank.debits}
    credited = Counter(entry.id for bank in banks for entry in bank.credits)
    invented = {
        entry.id
        for sender, receiver in (banks, banks[::-1])
        for entry in set(receiver.credits) - set(sender.debits)
    }
    accounts = {account: balance for bank in banks for account, balance in bank.accounts.items()}
    return Verdict(
        transfers=len(debited),
        lost=sorted((debited.keys() | confirmed) - credited.keys()),
        duplicated=sorted(id_ for id_, times in credited.items() if times > 1),
        invented=sorted(invented | (debited.keys() & refused)),
        reordered=[*_reordered(*banks), *_reordered(*banks[::-1])],
        misbooked=_misbooked(accounts, opening, banks),
        money=sum(accounts.values()),
    )


def _reordered(sender: Ledgers, receiver: Ledgers) -> list[str]:
    """Return the accounts whose transfers changed order in transit."""
    place = {entry.id: number for number, entry in enumerate(sender.debits)}
    arrived: dict[str, list[int]] = defaultdict(list)
    for entry in receiver.credits:
        if entry.id in place:
            arrived[entry.debited].append(place[entry.id])
    return sorted(account for account, order in arrived.items() if order != sorted(order))


def _misbooked(
    accounts: Mapping[str, int], opening: Mapping[str, int], banks: tuple[Ledgers, Ledgers]
) -> list[str]:
    expected = Counter(opening)
    for bank in banks:
        for entry in bank.debits:
            expected[entry.debited] -= entry.amount
        for entry in bank.credits:
            expected[entry.credited] += entry.amount
    known = {*accounts, *expected}
    return sorted(name for name in known if accounts.get(name) != expected[name])


T = TypeVar("T")

_PROCESSES = 2


class Bank:
    """A bank with a real database of its own.

    Args:
        name: of the bank, its application and its outbox.
        directory: of its logs.
        server: its database.
        has_outbox: its program debits accounts, and relays send what it publishes; else its workers
            debit accounts and send transfers in one decision.
    """

    def __init__(
        self, name: str, directory: Path, server: PostgresServer, *, has_outbox: bool
    ) -> None:
        self.name = name
        self.topic = f"{name}.transfers"
        self.requests = f"{name}.requests"
        self.refused = f"{name}.refused"
        self._has_outbox = has_outbox
        self._server = server
        settings = DatabaseSettings(dsn=SecretStr(server.dsn))
        self.database = Database(settings, application_name=f"eosframework demo of {name}")
        self._directory = directory
        self._relays: _Relays | None = None
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
        """Start relays, if there is an outbox, and workers."""
        environment = {"EOS_DATABASE__DSN": self._server.dsn}
        if self._has_outbox:
            self._relays = _Relays(self.name, bootstrap_servers, self._directory, environment)
        self._workers = Workers(
            example_file("transfer", f"{self.name}{'' if self._has_outbox else '_together'}.yaml"),
            bootstrap_servers,
            _PROCESSES,
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
        relays_are_up = self._relays is None or self._relays.are_up()
        return relays_are_up and self._workers is not None and self._workers.are_at_work()

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

    def _parts(self) -> list[_Relays | Workers]:
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
