"""A model of PostgreSQL as far as an outbox sees it, and four ways to relay it.

Sequences count at once and never go back, transaction ids are given at a first write, rows become
visible at the commit, locks are held until after that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from eosframework.postgres.database.outbox.outbox_table import Frontier, Look


class State(StrEnum):
    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


@dataclass(frozen=True)
class Row:
    number: int
    xid: int
    key: str
    text: str


@dataclass
class Transaction:
    name: str
    state: State = State.OPEN
    xid: int | None = None
    rows: list[Row] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    writes_outbox: bool = False

    @property
    def is_running(self) -> bool:
        return self.state in (State.OPEN, State.PREPARED)


class Database:
    """Transactions by name; each step of one is one call."""

    def __init__(self) -> None:
        self.number = 0
        self.next_xid = 10
        self.transactions: dict[str, Transaction] = {}
        self.published: list[Row] = []

    def transaction(self, name: str) -> Transaction:
        return self.transactions.setdefault(name, Transaction(name))

    def write(self, name: str) -> None:
        """Write somewhere: the transaction gets its id."""
        transaction = self.transaction(name)
        if transaction.xid is None:
            transaction.xid, self.next_xid = self.next_xid, self.next_xid + 1

    def lock(self, name: str, key: str) -> bool:
        """Lock a key, unless somebody has it; the caller would wait."""
        holders = [t for t in self.transactions.values() if t.is_running and key in t.keys]
        if holders and holders != [self.transaction(name)]:
            return False
        self.write(name)
        self.transaction(name).keys.add(key)
        return True

    def touch_outbox(self, name: str) -> None:
        """Take the table's lock, as an INSERT does before it evaluates defaults."""
        self.transaction(name).writes_outbox = True

    def publish(self, name: str, key: str) -> None:
        self.touch_outbox(name)
        self.write(name)
        transaction = self.transaction(name)
        self.number += 1
        row = Row(self.number, transaction.xid or 0, key, f"{name}:{self.number}")
        transaction.rows.append(row)
        self.published.append(row)

    def prepare(self, name: str) -> None:
        self.transaction(name).state = State.PREPARED

    def end(self, name: str, state: State = State.COMMITTED) -> None:
        self.transaction(name).state = state

    @property
    def visible(self) -> list[Row]:
        committed = [t for t in self.transactions.values() if t.state is State.COMMITTED]
        return sorted((row for t in committed for row in t.rows), key=lambda row: row.number)

    @property
    def xmin(self) -> int:
        """The oldest transaction id that is running, else the next one."""
        running = [t.xid for t in self.transactions.values() if t.is_running and t.xid is not None]
        return min(running, default=self.next_xid)

    def look_at_writers(self, number: int) -> Look:
        """The second half of a look whose first half read `number`."""
        named = {State.OPEN: set[str](), State.PREPARED: set[str]()}
        for t in self.transactions.values():
            if t.is_running and t.writes_outbox:
                # Preparing gives it another name, as virtualtransaction in pg_locks does.
                named[t.state].add(t.name if t.state is State.OPEN else f"-1/{t.name}")
        return Look(number, frozenset(named[State.OPEN]), frozenset(named[State.PREPARED]))


class Relay:
    """Sends rows of a database in steps that others may come between."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.sent: list[Row] = []

    def step(self) -> None:
        raise AssertionError("a way to relay says how")


class ByNumber(Relay):
    """The position is the highest number that was sent."""

    position = 0

    def step(self) -> None:
        rows = [row for row in self.database.visible if row.number > self.position]
        self.sent += rows
        self.position = max((row.number for row in rows), default=self.position)


class ByTransactionId(Relay):
    """Final rows in the order of their transaction ids."""

    lower = 0

    def step(self) -> None:
        upper = self.database.xmin
        rows = [row for row in self.database.visible if self.lower <= row.xid < upper]
        self.sent += sorted(rows, key=lambda row: (row.xid, row.number))
        self.lower = upper


class ByWindows(Relay):
    """Windows of final transaction ids, in the order of numbers within each."""

    lower = 0

    def step(self) -> None:
        upper = self.database.xmin
        self.sent += [row for row in self.database.visible if self.lower <= row.xid < upper]
        self.lower = upper


class ByFrontier(Relay):
    """Ours: numbers up to the frontier. Each step is one of its three."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.frontier = Frontier()
        self.position = 0
        self._number: int | None = None
        self._is_read = True

    def step(self) -> None:
        if not self._is_read:
            final = self.frontier.final
            self.sent += [r for r in self.database.visible if self.position < r.number <= final]
            self.position, self._is_read = final, True
        elif self._number is None:
            self._number = self.database.number
        else:
            self.frontier.take(self.database.look_at_writers(self._number))
            self._number, self._is_read = None, False
