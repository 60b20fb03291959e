"""What the relay needs from the outside, as protocols; `postgres/` and `kafka/` implement them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eosframework.outbox.relay_position import Found, RelayPosition
from eosframework.processing.ports import Output

ID_HEADER = "__eos.outbox.id"
"""Header by which a message is known in Kafka: a UUID made when it was published."""

Place = tuple[int, int]
"""The number of a row and 0; of a message in the log its transaction's commit, and its number in
that, from 1."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that cannot be sent.

    Args:
        place: of the message in its source.
        id: the value of its `ID_HEADER`.
        reason: in one clause, for people.
        output: None: it cannot be read as one.
    """

    place: Place
    id: str
    topic: str
    reason: str
    output: Output | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one shard, all of them final, in the order in which they are to be sent.

    Args:
        places: of the outputs, one for each.
        position: behind the last of them, or behind more that another shard sends.
        is_last: nothing final was left behind them.
        largest_bytes: no message is larger, without what Kafka adds to it.
        refused: messages between them that cannot be read, or are too large to be read.
        unreadable: entries under the outbox's name that are no message; they are passed over.
        is_worth_writing: the position has to be written although there is no message.
        cut_by: the error that ends the relay when all before is sent; None: there is none.
    """

    outputs: Sequence[Output]
    places: Sequence[Place]
    position: RelayPosition
    is_last: bool
    largest_bytes: int = 0
    refused: Sequence[Refused] = ()
    unreadable: int = 0
    is_worth_writing: bool = False
    cut_by: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message that the outbox holds, sent or not.

    Args:
        id: the value of its `ID_HEADER`.
        lane: see `lanes`.
        number: its own; behind its transaction's commit where the source is a slot.
        within: counted from 1 in its transaction where the source is a slot, else 0.
        unsendable: why it cannot be sent, as far as that can be seen; the output has no headers
            then. None: nothing is known against it.
    """

    id: str
    lane: int
    number: int
    output: Output
    within: int = 0
    unsendable: str | None = None

    @property
    def place(self) -> Place:
        """Its place in the source."""
        return (self.number - 1, self.within) if self.within else (self.number, 0)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits to be sent.

    Args:
        messages: how many, estimated where there are many; None: the source does not count them.
        oldest_seconds: since when the first of them waits; 0: none does; None: not known.
        log_bytes: of the database's log that cannot be removed before it is read; None: the
            source is no log.
    """

    messages: int | None = None
    oldest_seconds: float | None = None
    log_bytes: int | None = None


class OutboxSource(Protocol):
    """One session with the database that holds the outbox.

    Every method raises DatabaseAway if the session is lost; then all that it held is lost too,
    and `connect` begins another.
    """

    def connect(self) -> None:
        """Begin a session.

        Raises:
            DatabaseAway: nobody answered, or not yet.
            UserError: it cannot be used as it is; says what to do.
        """
        ...

    def hold(self, shard: int) -> bool:
        """Take the right to relay a shard if nobody has it; it ends with the session."""
        ...

    def let_go(self, shard: int) -> None:
        """Give the right to relay a shard to whoever wants it."""
        ...

    def holds(self, shard: int) -> bool:
        """Ask the database whether this session still has that right."""
        ...

    def relays(self) -> int:
        """Return how many relays of this name have a session, this one included."""
        ...

    def register(self) -> bool:
        """Make this relay's name known to the database, and return whether it was not.

        Raises:
            StartRefused: another name is known, so this relay would send everything once more.
        """
        ...

    def forget(self, name: str) -> None:
        """Let the database forget a relay, which may be this one."""
        ...

    def known_shards(self) -> int:
        """Return how many shards relays of this name ever took; 0: none."""
        ...

    def rivals(self) -> Mapping[str, int]:
        """Return the other names under which the outbox was relayed, with their shards.

        Raises:
            StartRefused: there is one whose place cannot be taken.
        """
        ...

    def hold_rival(self, name: str, shard: int) -> bool:
        """Take the right to relay a shard of another name, if no relay has it."""
        ...

    def found(self, shard: int) -> Found:
        """Return what the database says about itself, for comparing it with a position."""
        ...

    def next_turn(self, shard: int) -> int:
        """Count the shard's turns in the database up by one, durably, and return the count."""
        ...

    def start(self, shard: int, found: Found) -> int:
        """Return the number behind which a shard starts that was never relayed."""
        ...

    def look(self) -> bool:
        """See how far the outbox is final, and return whether more waits to become so."""
        ...

    def read(self, shard: int, after: RelayPosition, limit: int) -> Batch:
        """Return what lies behind `after` and was final at the last `look`."""
        ...

    def read_ahead(self, shard: int, after: RelayPosition, limit: int) -> None:
        """Let the database begin with what `read` will be asked for next; a source need not."""
        ...

    def take_in(self) -> None:
        """Take what was asked for ahead off the database's hands: it may not be read for long."""
        ...

    def backlog(self, shard: int, after: RelayPosition) -> Backlog:
        """Return what lies behind `after`, in a time that does not grow with it."""
        ...

    def clean(self, shard: int, through: RelayPosition) -> bool:
        """Remove some of what is behind a committed position; return whether more is left."""
        ...

    def wait(self, seconds: float) -> None:
        """Return when something was published, or after `seconds`."""
        ...

    def candidates(self) -> Iterator[Candidate]:
        """Return all messages that the outbox holds and that were final at the last `look`."""
        ...

    def end(self) -> int:
        """Return the number up to which all was final at the last `look`."""
        ...

    def notes(self) -> list[str]:
        """Return what a user has to know of messages that `candidates` cannot tell."""
        ...

    def begin_behind(self, shard: int, number: int) -> int:
        """See to it that a shard can be read behind `number`; return behind what it can be."""
        ...

    def retire(self, shard: int) -> None:
        """Remove what belongs to a shard that there is no more."""
        ...

    def set_aside(self, refused: Sequence[Refused]) -> None:
        """Keep messages that cannot be sent apart, for good: no relay sends them after that.

        Messages that are there already are no error.
        """
        ...

    def name_of(self, refused: Refused) -> str:
        """Return how a message is to be named to a user, and how it is removed."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class PositionLog(Protocol):
    """The positions of a relay's shards, in Kafka.

    Its methods raise ClusterUnreachable if nobody answers in time.
    """

    def read(self) -> Mapping[int, RelayPosition]:
        """Return the committed position of each shard that has one.

        What is in doubt is waited for, unless the ids of the shards are taken first, which
        settles it.
        """
        ...

    def decided(self) -> Mapping[int, RelayPosition]:
        """Return what is committed and not behind a transaction in doubt; waits for nothing."""
        ...

    def output(self, shard: int, position: RelayPosition | None) -> Output:
        """Return what to produce so that a position counts, or that none does."""
        ...


@dataclass(frozen=True, slots=True)
class Destination:
    """The messages that a topic takes.

    Args:
        refusal: why nothing can be sent there; None: something can.
        most_bytes: of one message; 0: not known.
        needs_key: it takes no message without a key.
    """

    refusal: str | None = None
    most_bytes: int = 0
    needs_key: bool = False


class Destinations(Protocol):
    """The topics that messages go to."""

    def describe(self, topics: Iterable[str]) -> Mapping[str, Destination]:
        """Return what each topic takes, after asking brokers to create those that do not exist.

        Raises:
            ClusterUnreachable: nobody answered in time.
        """
        ...


class SentLog(Protocol):
    """Reads which messages Kafka holds, by `ID_HEADER`."""

    def sent(self, since_by_topic: Mapping[str, int]) -> SentMessages:
        """Return the ids in each topic of all records that are not older.

        Args:
            since_by_topic: milliseconds since the epoch.
        """
        ...


@dataclass(frozen=True, slots=True)
class SentMessages:
    """What Kafka holds.

    Args:
        ids: of the messages found.
        removed_before: by topic, where its log may have lost records of the time asked for: none
            older than this moment, in milliseconds, can be missed there.
    """

    ids: frozenset[str]
    removed_before: Mapping[str, int]
