"""A relay's positions in the control topic, committed with the messages that they follow.

Outbox numbers are comparable only within one history of one database. So a position names its
history, and the relay compares it with the database before it sends anything: the database may
have been restored from a backup, copied to another cluster, or promoted from a standby.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, Self

from eosframework.errors import StartRefused
from eosframework.transactions.ports import Output
from eosframework.txnid import control_topic

VERSION = 1
SUB_TOPOLOGY = "relay.outbox"


@dataclass(frozen=True, slots=True)
class Origin:
    """The database and the history that a position belongs to.

    Args:
        system_identifier: that the cluster got from initdb; copies and standbys keep it.
        timeline: grows when a standby is promoted and when a backup is recovered.
    """

    system_identifier: str
    timeline: int
    database: str


@dataclass(frozen=True, slots=True)
class RelayPosition:
    """The position up to which one shard was sent.

    Args:
        source: `table` or `slot`; the numbers of the two are not comparable.
        through: the last number that was sent completely: of a row, or the LSN of a commit.
        within: number of messages that were sent of the transaction after `through`.
        turn: the database's turn counter when the relay last wrote to it; the counter decreases
            only if the database is replaced by an older state.
        shards: number of shards when the position was written.
    """

    source: str
    through: int
    within: int
    origin: Origin
    turn: int
    shards: int

    def is_at(self, other: RelayPosition) -> bool:
        """Return whether both are at the same place, regardless of turn and shards."""
        return (self.source, self.origin, self.through, self.within) == (
            other.source,
            other.origin,
            other.through,
            other.within,
        )

    def to_entry(self) -> dict[str, Any]:
        """Return the control topic's entry."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Self:
        """Read an entry back.

        Raises:
            StartRefused: a newer version of eosframework wrote it.
        """
        values = dict(entry)
        version = values.pop("version", None)
        if version != VERSION:
            raise StartRefused(
                f"the relay's position is of version {version}, and this eosframework reads "
                f"version {VERSION}; run the one that wrote it"
            )
        origin = Origin(**values.pop("origin"))
        return cls(origin=origin, **values)


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """The database's state when a relay takes a shard over.

    Args:
        turn: the shard's turn counter.
        cleaned: messages up to this number were deleted after they were sent; 0: none were.
        first: messages after this number can be read.
        last: the highest number given out.
    """

    source: str
    origin: Origin
    turn: int
    cleaned: int
    first: int
    last: int


def just_before(position: RelayPosition, place: tuple[int, int]) -> RelayPosition:
    """Return the position that the message at `place` follows directly."""
    number, within = place
    through = number if within else number - 1
    return replace(position, through=through, within=max(within - 1, 0))


def position_key(shard: int) -> str:
    """Return the control topic's key of a shard's position."""
    return f"{SUB_TOPOLOGY}/{shard}"


def refuse_other_history(
    name: str, shards: int, position: RelayPosition | None, found: DatabaseState
) -> None:
    """Raise unless `position` belongs to the database's current history.

    Args:
        name: the relay's name in the settings.
        shards: the number of shards in the settings.
        position: None: none was ever written.
        found: the database's state.

    Raises:
        StartRefused: names what happened to the database, the consequence, and the next step.
    """
    reason = _changed(name, position, found)
    if reason is None and position is not None and position.shards != shards:
        reason = (
            f"its positions are those of outbox.shards={position.shards} and the settings say "
            f"{shards}; a key would change its shard between two positions. Set it back, or stop "
            f"every relay of this name first"
        )
    if reason is not None:
        raise StartRefused(
            f"relay {name!r} sends nothing: {reason}. `eosframework relay-outbox reconcile` "
            f"compares the outbox with what Kafka holds, shows what it would send, and with --yes "
            f"sends it and sets the position"
        )


def fits(position: RelayPosition, found: DatabaseState) -> bool:
    """Return whether a position belongs to the database's current history."""
    return _changed("", position, found) is None


def _changed(name: str, position: RelayPosition | None, found: DatabaseState) -> str | None:
    """Return the most significant contradiction; None: there is none."""
    if position is None:
        return _position_gone(name, found)
    was, now = position.origin, found.origin
    if position.source != found.source:
        return (
            f"its position is one of outbox.source={position.source!r} and the settings say "
            f"{found.source!r}; numbers of one mean nothing in the other"
        )
    if was.system_identifier != now.system_identifier or was.database != now.database:
        return (
            f"its position belongs to database {was.database!r} of the cluster with system "
            f"identifier {was.system_identifier}, and this is {now.database!r} of "
            f"{now.system_identifier}: the database was restored into a new cluster, or another "
            f"one uses the same outbox.name. Numbers may have been sent already, or mean others"
        )
    if was.timeline != now.timeline:
        return (
            f"its position belongs to timeline {was.timeline} and the database is on timeline "
            f"{now.timeline}: a standby was promoted, or a backup was recovered to a point in "
            f"time. Transactions may be missing whose messages were sent, and their numbers may "
            f"have been given to others"
        )
    return _set_back(position, found)


def _position_gone(name: str, found: DatabaseState) -> str | None:
    if found.cleaned == 0:
        return None
    return (
        f"the database says that messages up to {found.cleaned} were sent, and Kafka has no "
        f"position of it: the topic {control_topic(name)} was deleted, or this is another Kafka "
        f"cluster. Without it messages would be sent again"
    )


def _set_back(position: RelayPosition, found: DatabaseState) -> str | None:
    """Return a contradiction between the database and a position of its own history."""
    if found.turn < position.turn:
        return (
            f"the database is older than the position: the relay has written turn {position.turn} "
            f"to it, and it says {found.turn}. A backup was put in its place, so numbers up to "
            f"{position.through} may have been given out again"
        )
    if found.last < position.through:
        return (
            f"the database has given out numbers up to {found.last}, and messages up to "
            f"{position.through} were sent: it was set back, or the outbox was made again, so "
            f"messages to come would count as sent"
        )
    if found.first > position.through:
        return (
            f"messages up to {position.through} were sent, and only messages after {found.first} "
            f"can be read: another process removed those in between"
        )
    return None


ID_HEADER = "__eos.outbox.id"
"""Header that identifies a message in Kafka: a UUID made when the message was published."""

Place = tuple[int, int]
"""A message's place in its source. In the table: the row's number, and 0. In the write-ahead log:
the LSN of its transaction's commit, and its number in the transaction, from 1."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that cannot be sent.

    Args:
        place: of the message in its source.
        id: the value of its `ID_HEADER`.
        reason: one clause, for people.
        output: None: the message cannot be decoded.
    """

    place: Place
    id: str
    topic: str
    reason: str
    output: Output | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Final messages of one shard, in the order in which they must be sent.

    Args:
        places: of the outputs, one each.
        position: after the last output and after any following messages of other shards.
        is_last: no final message follows.
        largest_bytes: upper bound for a message's size, without Kafka's overhead.
        refused: messages between the outputs that cannot be decoded or are too large to read.
        unreadable: log entries with the outbox's prefix that are not messages; they are skipped.
        is_worth_writing: the position must be written even if there are no outputs.
        is_slow_next: the next read may take longer than a transaction may; commit first.
        cut_by: the error that ends the relay after the outputs are sent; None: there is none.
    """

    outputs: Sequence[Output]
    places: Sequence[Place]
    position: RelayPosition
    is_last: bool
    largest_bytes: int = 0
    refused: Sequence[Refused] = ()
    unreadable: int = 0
    is_worth_writing: bool = False
    is_slow_next: bool = False
    cut_by: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message in the outbox, sent or not.

    Args:
        id: the value of its `ID_HEADER`.
        lane: the hash of its key, see `sharding`.
        number: the row's number; of a slot the LSN after its transaction's commit.
        within: of a slot its number in its transaction, from 1; else 0.
        unsendable: the known reason that it cannot be sent; the output then has no headers. None:
            no such reason is known.
    """

    id: str
    lane: int
    number: int
    output: Output
    within: int = 0
    unsendable: str | None = None

    @property
    def place(self) -> Place:
        """The message's place in its source."""
        return (self.number - 1, self.within) if self.within else (self.number, 0)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The messages that are not sent yet.

    Args:
        messages: their number, estimated if there are many; None: the source cannot count them.
        oldest_seconds: age of the oldest; 0: there are none; None: not known.
        log_bytes: size of the write-ahead log that the database retains for the relay; None: the
            source is the table.
    """

    messages: int | None = None
    oldest_seconds: float | None = None
    log_bytes: int | None = None


@dataclass(slots=True)
class RelayCounts:
    """A relay's counters since its start.

    Args:
        unknown_outcomes: commits whose outcome was read from the control topic.
        database_retries: sessions that were lost or could not begin.
        refused: messages that were set aside.
        unreadable: log entries with the outbox's prefix that are not valid messages.
    """

    messages: int = 0
    commits: int = 0
    aborts: int = 0
    recycles: int = 0
    fences: int = 0
    unknown_outcomes: int = 0
    database_retries: int = 0
    refused: int = 0
    unreadable: int = 0


class OutboxSource(Protocol):
    """A session with the database that contains the outbox.

    Every method raises DatabaseUnavailable if the session is lost; its locks are then lost too, and
    `connect` begins another session.

    Attributes:
        ends_waiting: called ten times a second while the database works for long; True ends that.
    """

    ends_waiting: Callable[[], bool]

    @property
    def wants_clean(self) -> bool:
        """True if `clean` makes further reads cheaper; False: it can wait until all is sent."""
        ...

    def connect(self) -> None:
        """Begin a session.

        Raises:
            DatabaseUnavailable: the database is unavailable, or is still starting.
            UserError: the database cannot be used as it is; names the next step.
        """
        ...

    def lock_shard(self, shard: int) -> bool:
        """Lock a shard if it is free and return whether it was; the session's end releases it."""
        ...

    def unlock_shard(self, shard: int) -> None:
        """Release a shard's lock."""
        ...

    def has_lock(self, shard: int) -> bool:
        """Ask the database whether this session still holds a shard's lock."""
        ...

    def relays(self) -> int:
        """Return the number of sessions of relays of this name, this one included."""
        ...

    def register(self) -> bool:
        """Register this relay's name in the database, and return whether it was new.

        Raises:
            StartRefused: another name is registered; this relay would send every message again.
        """
        ...

    def forget(self, name: str) -> None:
        """Remove a relay's name, which may be this one's, from the database."""
        ...

    def known_shards(self) -> int:
        """Return the largest number of shards that relays of this name had; 0: there were none."""
        ...

    def rivals(self) -> Mapping[str, int]:
        """Return the other registered relay names, each with its number of shards.

        Raises:
            StartRefused: this relay cannot replace one of them.
        """
        ...

    def hold_rival(self, name: str, shard: int) -> bool:
        """Lock a shard of a relay of another name if it is free, and return whether it was."""
        ...

    def found(self, shard: int) -> DatabaseState:
        """Return the database's state, to compare it with a position."""
        ...

    def next_turn(self, shard: int) -> int:
        """Increment the shard's turn in the database, durably, and return it."""
        ...

    def start(self, shard: int, found: DatabaseState) -> int:
        """Return the number after which a shard without a position starts."""
        ...

    def look(self) -> bool:
        """Find the number up to which the outbox is final; return whether later rows wait."""
        ...

    def read(self, shard: int, after: RelayPosition, limit: int) -> Batch:
        """Return the next messages after `after` that were final at the last `look`."""
        ...

    def read_ahead(self, shard: int, after: RelayPosition, limit: int) -> None:
        """Send the query of the next `read` early; a source may ignore this."""
        ...

    def take_in(self) -> None:
        """Receive rows of a query sent early, since the next `read` may come much later."""
        ...

    def backlog(self, shard: int, after: RelayPosition) -> Backlog:
        """Return the backlog after `after`, in a time that does not depend on its size."""
        ...

    def clean(self, shard: int, through: RelayPosition) -> bool:
        """Delete some messages up to a committed position; return whether more are left."""
        ...

    def wait(self, seconds: float) -> None:
        """Return after a message was published, at the latest after `seconds`."""
        ...

    def candidates(self) -> Iterator[Candidate]:
        """Return all messages in the outbox that were final at the last `look`."""
        ...

    def end(self) -> int:
        """Return the number up to which the outbox was final at the last `look`."""
        ...

    def notes(self) -> list[str]:
        """Return notes for the user about messages that `candidates` does not return."""
        ...

    def begin_behind(self, shard: int, number: int) -> int:
        """Make a shard readable after `number`, and return the number after which it is."""
        ...

    def retire(self, shard: int) -> None:
        """Remove a shard that no longer exists from the database."""
        ...

    def set_aside(self, refused: Sequence[Refused]) -> None:
        """Set messages that cannot be sent aside, durably: no relay sends them afterwards.

        A message that was set aside before is accepted.
        """
        ...

    def name_of(self, refused: Refused) -> str:
        """Return a message's description for the user, with the way to remove it."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


@dataclass(frozen=True, slots=True)
class Destination:
    """The messages that a topic accepts.

    Args:
        refusal: the reason that it accepts none; None: it accepts some.
        most_bytes: largest message; 0: not known.
        needs_key: it accepts only messages with a key.
    """

    refusal: str | None = None
    most_bytes: int = 0
    needs_key: bool = False


class Destinations(Protocol):
    """Descriptions of the topics that messages are sent to."""

    def describe(self, topics: Iterable[str]) -> Mapping[str, Destination]:
        """Return a description of each topic; brokers are asked to create missing topics first.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        ...


class SentLog(Protocol):
    """Reads the ids (`ID_HEADER`) of the messages in Kafka."""

    def sent(self, since_by_topic: Mapping[str, int]) -> SentMessages:
        """Return the ids of all records from a time on.

        Args:
            since_by_topic: the time for each topic, in milliseconds since the epoch.
        """
        ...


@dataclass(frozen=True, slots=True)
class SentMessages:
    """The messages found in Kafka.

    Args:
        ids: of the messages.
        removed_before: for topics that may have deleted records of the requested time: the time,
            in milliseconds since the epoch, from which on no record is missing.
    """

    ids: frozenset[str]
    removed_before: Mapping[str, int]
