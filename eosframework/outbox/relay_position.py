"""A relay's positions in the control topic, committed with the messages that they follow.

Outbox numbers are comparable only within one history of one database. So a position names its
history, and the relay compares it with the database before it sends anything: the database may
have been restored from a backup, copied to another cluster, or promoted from a standby.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from eosframework.errors import StartRefused
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
