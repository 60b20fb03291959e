"""The relay's ports in memory, with faults that a test chooses: for its decisions only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eosframework.config import OutboxRefusal
from eosframework.errors import DatabaseUnavailable, StartRefused
from eosframework.postgres.outbox.relay import Relay, RelayOptions
from eosframework.postgres.outbox.relay_position import (
    Backlog,
    Batch,
    Candidate,
    DatabaseState,
    Destination,
    Origin,
    Refused,
    RelayPosition,
    position_key,
)
from eosframework.transactions.ports import Output
from tests.support.memory.journal import MemoryJournal
from tests.support.memory.scripted_kafka import Broker, MemoryOutputs

REGISTRY = "relay-control"
ORIGIN = Origin("7", 1, "shop")


@dataclass
class Table:
    """An outbox with everything that outlasts a session."""

    rows: list[tuple[int, str, str]] = field(default_factory=list)
    origin: Origin = ORIGIN
    turn: int = 0
    cleaned: int = 0
    last: int = 0
    read_seconds: float = 0.0
    holders: dict[int, MemorySource] = field(default_factory=dict)
    sessions: list[MemorySource] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    shards_taken: int = 0
    rivals_held: set[tuple[str, int]] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)

    def publish(self, *values: str, lane: int = 0) -> None:
        for value in values:
            self.last += 1
            self.rows.append((self.last, value, str(lane)))

    @property
    def set_aside(self) -> list[str]:
        """The values of the messages that were set aside."""
        return [value for value, _ in self.refused]


class MemorySource:
    """An OutboxSource; `faults` of the table name the calls that lose the session, in turn."""

    def __init__(self, table: Table, clock: Clock, *, shards: int = 1, name: str = "relay") -> None:
        self.table = table
        self.name = name
        self.clock = clock
        self.shards = shards
        self.ends_waiting: Callable[[], bool] = lambda: False
        self.wants_clean = False

    def connect(self) -> None:
        self._may_fail("connect")
        self.table.sessions.append(self)

    def lose(self) -> None:
        """Lose the session, as the server sees it."""
        if self in self.table.sessions:
            self.table.sessions.remove(self)
        for shard in [s for s, holder in self.table.holders.items() if holder is self]:
            del self.table.holders[shard]

    def lock_shard(self, shard: int) -> bool:
        self._may_fail("hold")
        return self.table.holders.setdefault(shard, self) is self

    def unlock_shard(self, shard: int) -> None:
        self.table.holders.pop(shard, None)

    def has_lock(self, shard: int) -> bool:
        self._may_fail("holds")
        return self.table.holders.get(shard) is self

    def relays(self) -> int:
        self._may_fail("relays")
        return len(self.table.sessions)

    def register(self) -> bool:
        self._may_fail("register")
        if self.name in self.table.names:
            return False
        if self.table.names:
            raise StartRefused(f"relayed under the name {sorted(self.table.names)}")
        self.table.names.add(self.name)
        return True

    def forget(self, name: str) -> None:
        self._may_fail("forget")
        self.table.names.discard(name)

    def known_shards(self) -> int:
        return self.table.shards_taken

    def rivals(self) -> Mapping[str, int]:
        return dict.fromkeys(self.table.names - {self.name}, 1)

    def hold_rival(self, name: str, shard: int) -> bool:
        return (name, shard) not in self.table.rivals_held

    def found(self, shard: int) -> DatabaseState:
        table = self.table
        return DatabaseState("table", table.origin, table.turn, table.cleaned, 0, table.last)

    def next_turn(self, shard: int) -> int:
        self.table.turn += 1
        return self.table.turn

    def start(self, shard: int, found: DatabaseState) -> int:
        return 0

    def look(self) -> bool:
        self._may_fail("look")
        return False

    def read(self, shard: int, after: RelayPosition, limit: int) -> Batch:
        self._may_fail("read")
        self.clock.now += self.table.read_seconds
        rows = [r for r in self._rows(shard) if r[0] > after.through][:limit]
        is_last = len(rows) < limit
        through = self.table.last if is_last else rows[-1][0]
        position = replace(after, through=through)
        bad = [r for r in rows if r[1] in self.table.unreadable]
        good = [r for r in rows if r not in bad]
        return Batch(
            [output_of(r[1]) for r in good],
            [(r[0], 0) for r in good],
            position,
            is_last,
            largest_bytes=max((len(r[1]) for r in good), default=0) + 100,
            refused=[Refused((r[0], 0), r[1], "orders", "unreadable") for r in bad],
        )

    def read_ahead(self, shard: int, after: RelayPosition, limit: int) -> None:
        self._may_fail("read_ahead")

    def take_in(self) -> None:
        self._may_fail("take_in")

    def backlog(self, shard: int, after: RelayPosition) -> Backlog:
        self._may_fail("backlog")
        return Backlog(sum(row[0] > after.through for row in self._rows(shard)), 0.0)

    def clean(self, shard: int, through: RelayPosition) -> bool:
        self._may_fail("clean")
        gone = [r for r in self._rows(shard) if r[0] <= through.through]
        self.table.rows = [r for r in self.table.rows if r not in gone]
        self.table.cleaned = max(self.table.cleaned, through.through)
        return False

    def wait(self, seconds: float) -> None:
        self.clock.pass_(max(seconds, 0.001))

    def candidates(self) -> Iterator[Candidate]:
        for number, value, lane in self.table.rows:
            wrong = "unreadable" if value in self.table.unreadable else None
            yield Candidate(value, int(lane), number, output_of(value), unsendable=wrong)

    def end(self) -> int:
        return self.table.last

    def notes(self) -> list[str]:
        return []

    def begin_behind(self, shard: int, number: int) -> int:
        return number

    def retire(self, shard: int) -> None:
        return None

    def set_aside(self, refused: Sequence[Refused]) -> None:
        self._may_fail("set_aside")
        for one in refused:
            [row] = [row for row in self.table.rows if row[0] == one.place[0]]
            self.table.rows.remove(row)
            self.table.refused.append((row[1], one.reason))

    def name_of(self, refused: Refused) -> str:
        return f"row {refused.place[0]}"

    def close(self) -> None:
        self.lose()

    def _rows(self, shard: int) -> list[tuple[int, str, str]]:
        return [row for row in self.table.rows if int(row[2]) % self.shards == shard]

    def _may_fail(self, call: str) -> None:
        if self.table.faults and self.table.faults[0] == call:
            self.table.faults.pop(0)
            self.lose()
            raise DatabaseUnavailable(f"lost in {call}")


class MemoryDestinations:
    """Topics that accept what a test says."""

    def __init__(self) -> None:
        self.no_topics: set[str] = set()
        self.takes = Destination()
        self.faults: list[Exception] = []

    def describe(self, topics: Iterable[str]) -> Mapping[str, Destination]:
        if self.faults:
            raise self.faults.pop()
        missing = Destination("the topic does not exist")
        return {t: missing if t in self.no_topics else self.takes for t in topics}


class Clock:
    """Time that passes only in waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.on_pass: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.on_pass()


class World:
    """One outbox and one broker, with relays between them."""

    def __init__(self, *, shards: int = 1) -> None:
        self.table = Table()
        self.broker = Broker()
        self.clock = Clock()
        self.shards = shards
        self.journal = MemoryJournal(self.broker, REGISTRY)
        self.destinations = MemoryDestinations()
        self.outputs = MemoryOutputs(self.broker)

    def relay(
        self,
        *,
        batch_rows: int = 4,
        keep_seconds: float = 0.0,
        name: str = "relay",
        on_refused: OutboxRefusal = OutboxRefusal.SET_ASIDE,
    ) -> Relay:
        options = RelayOptions(
            name=name,
            shards=self.shards,
            batch_rows=batch_rows,
            commit_interval_seconds=0.1,
            poll_interval_seconds=0.5,
            keep_seconds=keep_seconds,
            transaction_timeout_seconds=30.0,
            start_timeout_seconds=60.0,
            on_refused=on_refused,
        )
        source = MemorySource(self.table, self.clock, shards=self.shards, name=name)
        return Relay(
            source,
            MemoryOutputs(self.broker),
            self.journal,
            self.destinations,
            options,
            clock=self.clock,
            sleep=self.clock.pass_,
            measured=True,
        )

    def caught_up(self, relay: Relay | None = None) -> Relay:
        """Run a relay until it is caught up."""
        relay = relay or self.relay()
        relay.run(until_caught_up=True)
        return relay

    def position(self, shard: int = 0) -> RelayPosition:
        """The committed position of a shard."""
        [entry] = self.journal.settled([position_key(shard)]).values()
        return RelayPosition.from_entry(entry)

    @property
    def values(self) -> list[str]:
        """The messages that are visible, in order."""
        return [(o[1] or b"").decode() for o in self.broker.visible if o[0] != REGISTRY]


def output_of(value: str) -> Output:
    return (
        "orders",
        value.encode(),
        b"k",
        -1,
        None,
        None,
        1,
        [("__eos.outbox.id", value.encode())],
    )
