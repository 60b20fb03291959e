"""The outbox as messages in the write-ahead log, written by `emit`, in commit order.

Each shard reads through a replication slot of its own. The slot only retains the log: the relay
resumes at its position in Kafka, and the slot is advanced after that position is committed.

Parser of messages in pgoutput (PostgreSQL's logical replication protocol, version 1).
B  Begin    1 byte, then the commit's place in the log, a time and a transaction id
M  Message  flags, place, prefix ending in a zero byte, length, content
C  Commit   flags, the commit's place, the place after it, a time
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import orjson
import psycopg
import structlog

from eosframework.config import OutboxSourceKind
from eosframework.engine.failures.failure_handler import writable
from eosframework.errors import StartRefused
from eosframework.postgres.database.connection import Connection, Database
from eosframework.postgres.database.outbox.relay_session import (
    MOST_SHARDS,
    RelaySession,
    outbox_queries,
    slot_name,
)
from eosframework.postgres.outbox.publication import checked, decode_headers, encode_headers
from eosframework.postgres.outbox.relay_position import (
    ID_HEADER,
    Backlog,
    Batch,
    Candidate,
    DatabaseState,
    Place,
    Refused,
    RelayPosition,
)
from eosframework.postgres.outbox.sharding import lane_of, shard_of
from eosframework.records import LATEST_MS
from eosframework.transactions.ports import Output

PREFIX = b"eosframework.outbox"

_BEGIN = struct.Struct(">cQ")
_COMMIT = struct.Struct(">cBQQ")
_MESSAGE = struct.Struct(">cBQ")
_LENGTH = struct.Struct(">I")
_TRANSACTIONAL = 1
"""The flag of a message that is part of a transaction; `emit` writes no other. A message without it
has its own place in the log, between transactions."""


NOT_EMITTED = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""Exceptions of parsing an entry that `emit` did not write."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The begin of a transaction, with the place of its commit in the log."""

    at: int


@dataclass(frozen=True, slots=True)
class Emitted:
    """One message as `emit` wrote it; `within` counts from 1 in its transaction.

    Args:
        size: in bytes, without Kafka's overhead.
    """

    id: str
    lane: int
    within: int
    size: int
    output: Output


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry under the outbox's name that `emit` did not write.

    Args:
        within: as of a message; 0: it belongs to no transaction.
        at: its own place in the log.
    """

    within: int
    at: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a transaction, with the place after its commit in the log."""

    at: int


Event = Begun | Emitted | Unreadable | Ended


def events(changes: Iterable[bytes]) -> Iterator[Event]:
    """Yield the outbox's events among the changes, in commit order."""
    within = 0
    for change in changes:
        kind = change[:1]
        if kind == b"B":
            within = 0
            yield Begun(_BEGIN.unpack_from(change)[1])
        elif kind == b"M":
            content = _content(change)
            if content is None:
                continue
            _, flags, at = _MESSAGE.unpack_from(change)
            if not flags & _TRANSACTIONAL:
                yield Unreadable(0, at)
                continue
            within += 1
            try:
                yield _emitted(content, within)
            except NOT_EMITTED:
                yield Unreadable(within, at)
        elif kind == b"C":
            yield Ended(_COMMIT.unpack_from(change)[3])


def _content(change: bytes) -> bytes | None:
    """Return the message's content; None: it has another prefix."""
    at = change.index(b"\0", _MESSAGE.size)
    if change[_MESSAGE.size : at] != PREFIX:
        return None
    (length,) = _LENGTH.unpack_from(change, at + 1)
    start = at + 1 + _LENGTH.size
    return change[start : start + length]


def _emitted(content: bytes, within: int) -> Emitted:
    """Parse a message.

    Raises:
        NOT_EMITTED: `emit` did not write it.
    """
    line, _, rest = content.partition(b"\n")
    facts = orjson.loads(line)
    id_, topic, at = str(UUID(facts["id"])), facts["topic"], facts["at"]
    key_length, value_length = facts["key"], facts["value"]
    split = key_length or 0
    lengths_fit = (
        (key_length is None or key_length.__class__ is int)
        and (value_length is None or value_length.__class__ is int)
        and 0 <= split <= len(rest) == split + (value_length or 0)
    )
    times_fit = at.__class__ is int and 0 <= at <= LATEST_MS
    if topic.__class__ is not str or not lengths_fit or not times_fit:
        raise ValueError("the facts of a message do not fit")
    key = None if key_length is None else rest[:split]
    value = None if value_length is None else rest[split:]
    headers = [*checked(decode_headers(facts["headers"])), (ID_HEADER, id_)]
    output: Output = (topic, value, key, -1, None, None, at, headers)
    return Emitted(id_, lane_of(key, within), within, len(content), output)


STEP_BYTES = 64 * 2**20
"""Log that one peek decodes at least, after the position."""

SLOWEST_BYTES_PER_SECOND = 4 * 2**20
"""A server that decodes less in a second counts as unavailable; observed: 80 MB."""

FETCH_ROWS = 1000

SILENT_BYTES = 16 * 2**20
"""After this much log without a message a position is written, so that the server can remove it."""


class SlotSource(RelaySession):
    """The `OutboxSource` that reads the log.

    Args:
        batch_bytes: the size of one read, unless a single message is larger.
    """

    def __init__(self, database: Database, *, batch_bytes: int, **session: Any) -> None:
        super().__init__(database, **session)
        self._batch_bytes = batch_bytes
        self._peeks: dict[int, _Peek] = {}
        self._refused: set[Place] = set()
        self._has_looked = False
        self._end = 0
        self._wants_clean = False

    def begin(self, connection: Connection, wal_level: str) -> None:
        """Drop the state of an earlier session.

        Raises:
            StartRefused: the server's wal_level does not allow logical decoding.
        """
        self._peeks.clear()
        self._end = 0
        if wal_level != "logical":
            raise StartRefused(
                f"outbox.source=slot needs a server with wal_level=logical, and {self.place} has "
                f"wal_level={wal_level}; set it and restart the server, or use outbox.source=table"
            )
        if not outbox_queries.publication(connection):
            connection.execute("CREATE PUBLICATION eosframework_outbox")
        if not self._has_looked:
            _close_log(connection, self.place)
            self._has_looked = True

    def close(self) -> None:
        """End the session, and with it every lock."""
        super().close()
        for peek in self._peeks.values():
            peek.close()
        self._peeks.clear()

    def same_source(self, others: set[str], with_slots: set[str]) -> set[str]:
        """Return the relays that read the log, each through slots of its own."""
        return others & with_slots

    def rivals(self) -> Mapping[str, int]:
        """Return none: a relay of the log cannot replace another one.

        Raises:
            StartRefused: another relay is registered, and this one is not.
        """
        self.refuse_second_name()
        return {}

    @property
    def renaming(self) -> str:
        """Advice on another name for the relay, for messages: its slots cannot be renamed."""
        return (
            "A relay of the log keeps its name, which its replication slots have too. To give up "
            "what it has not sent, drop its slots with pg_drop_replication_slot and DELETE it "
            "FROM eosframework.relays"
        )

    def look(self) -> bool:
        """Read the end of the log; all of it is final."""
        with self.doing("look at the log") as connection:
            _, flushed = outbox_queries.written(connection)
        self._end = int(flushed)
        return False

    def lock_shard(self, shard: int) -> bool:
        """Take the lock on a shard if it is free, and load the messages set aside in it."""
        if not super().lock_shard(shard):
            return False
        first = min(self._slots().values(), default=0)
        with self.doing("look for messages that were set aside") as connection:
            self._refused.update(
                outbox_queries.refused_places(
                    connection, cluster=self.origin.system_identifier, first=first
                )
            )
        return True

    def found(self, shard: int) -> DatabaseState:
        """Return the database's state, to compare it with a position."""
        with self.doing("look at the log") as connection:
            written, _ = outbox_queries.written(connection)
        first = self._slots().get(self._slot(shard), int(written))
        return self.described(OutboxSourceKind.SLOT, shard, first=first, last=int(written))

    def start(self, shard: int, found: DatabaseState) -> int:
        """Create the slot of a shard that was never relayed, and return its start."""
        slot = self._slot(shard)
        slots = self._slots()
        if slot not in slots:
            with self.doing("make a replication slot") as connection:
                return int(outbox_queries.create_slot(connection, slot=slot))
        return slots[slot]

    def read(self, shard: int, after: RelayPosition, limit: int) -> Batch:
        """Return messages after a position that were final at the last `look`."""
        with self.doing("read the log") as connection:
            peek = self._peeks.get(shard)
            if peek is None or not peek.position.is_at(after):
                if peek is not None:
                    peek.close()
                if after.through >= self._end:
                    return Batch((), (), after, True)
                try:
                    peek = self._peek(connection, self._slot(shard), after)
                except psycopg.errors.QueryCanceled:
                    if not self.ends_waiting():
                        raise
                    return Batch((), (), after, True)
                self._peeks[shard] = peek
            found = peek.read(shard, self.shards, limit, self._batch_bytes)
            unreadable, peek.unreadable = peek.unreadable, 0
            if peek.is_done:
                peek.close()
                del self._peeks[shard]
                self._wants_clean = True
        position = replace(after, through=peek.position.through, within=peek.position.within)
        found = [(place, message) for place, message in found if place not in self._refused]
        return Batch(
            outputs=[message.output for _, message in found],
            places=[place for place, _ in found],
            position=position,
            is_last=peek.is_done and peek.is_all,
            largest_bytes=max((message.size for _, message in found), default=0),
            unreadable=unreadable if shard == 0 else 0,
            is_slow_next=peek.is_done,
            is_worth_writing=not found and position.through - after.through > SILENT_BYTES,
        )

    def read_ahead(self, shard: int, after: RelayPosition, limit: int) -> None:
        """Do nothing: the server keeps the decoded messages."""

    def take_in(self) -> None:
        """Do nothing: no query is pending."""

    def backlog(self, shard: int, after: RelayPosition) -> Backlog:
        """Return the amount of log after a position, including log that is not the outbox's."""
        with self.doing("look at the log") as connection:
            written, _ = outbox_queries.written(connection)
        return Backlog(log_bytes=max(0, int(written) - after.through))

    @property
    def wants_clean(self) -> bool:
        """True after a peek: the next one decodes all of the log that the slot still holds."""
        return self._wants_clean

    def clean(self, shard: int, through: RelayPosition) -> bool:
        """Advance the slot to a committed position, so that the server can remove log."""
        self._wants_clean = False
        slot = self._slot(shard)
        if self._slots().get(slot, through.through) < through.through:
            with self.doing("advance a replication slot") as connection:
                outbox_queries.advance(connection, slot=slot, through=through.through)
                outbox_queries.note_cleaned(
                    connection, name=self.name, shard=shard, through=through.through
                )
                kept = min(self._slots().values(), default=through.through)
                self._refused = {place for place in self._refused if place[0] >= kept}
                outbox_queries.forget_republished(
                    connection, cluster=self.origin.system_identifier, through=kept
                )
        return False

    def candidates(self) -> Iterator[Candidate]:
        """Return all messages that a slot still holds, from the slot that holds most."""
        slots = self._slots()
        if not slots:
            return
        slot = min(slots, key=lambda name: slots[name])
        start = RelayPosition("", slots[slot], 0, self.origin, 0, 1)
        while start.through < self._end:
            with self.doing("read the log") as connection:
                peek = self._peek(connection, slot, start)
                for (at, within), message in peek.messages():
                    if (at, within) not in self._refused:
                        yield Candidate(message.id, message.lane, at + 1, message.output, within)
                start = peek.position
                peek.close()

    def end(self) -> int:
        """Return the place up to which all was final at the last `look`."""
        return self._end

    def notes(self) -> list[str]:
        """Return warnings about messages that are missing from `candidates`."""
        if self._slots():
            return []
        return [
            f"{self.place} has no replication slot of this relay: what was emitted up to now "
            f"cannot be read any more, and what was not sent of it is not known"
        ]

    def begin_behind(self, shard: int, number: int) -> int:
        """Make sure that a shard can be read after `number`; return the place it starts at."""
        slots = self._slots()
        slot = self._slot(shard)
        with self.doing("make a replication slot") as connection:
            if slot in slots:
                return number
            if slots:
                outbox_queries.copy_slot(connection, original=min(slots), slot=slot)
                return number
            return int(outbox_queries.create_slot(connection, slot=slot))

    def retire(self, shard: int) -> None:
        """Remove the state of a shard that no longer exists."""
        with self.doing("remove a replication slot") as connection:
            if self._slot(shard) in self._slots():
                outbox_queries.drop_slot(connection, slot=self._slot(shard))
            outbox_queries.retire(connection, name=self.name, shard=shard)

    def set_aside(self, refused: Sequence[Refused]) -> None:
        """Mark messages that cannot be sent; the log keeps them, and no relay sends them."""
        rows = [self._marked(one, one.output) for one in refused if one.output is not None]
        with (
            self.doing("set messages aside") as connection,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            cursor.executemany(outbox_queries.mark_refused.sql, rows)
        self._refused.update(one.place for one in refused)

    def name_of(self, refused: Refused) -> str:
        """Return a message's name for a user, with the way to remove it."""
        at, within = refused.place
        return (
            f"message {refused.id} in the log of {self.place} (number {within} of the transaction "
            f"that commits at {at}), for topic {refused.topic[:249]} (it cannot be taken out of "
            f"the log: make the topic take it)"
        )

    def _marked(self, refused: Refused, output: Output) -> dict[str, Any]:
        number, within = refused.place
        return {
            "cluster": self.origin.system_identifier,
            "number": number,
            "within": within,
            "reason": writable(refused.reason),
            "relay": self.name,
            "id": refused.id,
            "at": output[6],
            "topic": writable(refused.topic),
            "key": output[2],
            "value": output[1],
            "headers": encode_headers(output[7][:-1]),
        }

    def _peek(self, connection: Connection, slot: str, after: RelayPosition) -> _Peek:
        """Decode the log after a position, as much as the server has to decode before it.

        Each peek decodes from the slot's place, and a long transaction keeps that far back. With
        steps that grow with the distance, all of them together decode the log about twice.
        """
        first = int(outbox_queries.decoded_from(connection, slot=slot) or after.through)
        end = min(self._end, after.through + max(STEP_BYTES, after.through - first))
        longest = (end - first) / SLOWEST_BYTES_PER_SECOND
        with connection.long_work(longest, self.ends_waiting):
            return _Peek(connection, slot, after, end, is_all=end == self._end)

    def _slot(self, shard: int) -> str:
        return slot_name(self.name, shard)

    def _slots(self) -> dict[str, int]:
        """Return the relay's existing slots, with the place up to which each has released log.

        Raises:
            StartRefused: the server invalidated one, because it retained too much log.
        """
        names = {self._slot(shard): shard for shard in range(MOST_SHARDS)}
        with self.doing("look for replication slots") as connection:
            rows = list(outbox_queries.slots(connection, names=list(names)))
        for name, _, status in rows:
            if status == "lost":
                raise StartRefused(
                    f"replication slot {name} of {self.place} is lost: the server removed log that "
                    f"it still needed (max_slot_wal_keep_size), so messages are missing. Drop it "
                    f"with pg_drop_replication_slot, then run `eosframework relay-outbox reconcile`"
                )
        return {name: int(place) for name, place, _ in rows if place is not None}


class _Peek:
    """Decoded changes after a position; the server holds them and they are fetched in parts.

    Args:
        end: place up to which the changes were committed.
        is_all: nothing is known to follow it.
    """

    def __init__(
        self, connection: Connection, slot: str, after: RelayPosition, end: int, *, is_all: bool
    ) -> None:
        self.position = after
        self.is_done = False
        self.is_all = is_all
        self.unreadable = 0
        self._commit_at = 0
        self._end = end
        self._cursor = connection.cursor(name=f"peek_{slot}", binary=True, withhold=True)
        self._cursor.itersize = FETCH_ROWS
        try:
            self._cursor.execute(outbox_queries.peek.sql, {"slot": slot, "end": end})
        except psycopg.Error:
            self.close()
            raise
        self._messages = self._after(events(self._changes()), after.within)

    def messages(self) -> Iterator[tuple[Place, Emitted]]:
        """Yield the messages of all shards; the position is after each when it is yielded."""
        return self._messages

    def read(
        self, shard: int, shards: int, limit: int, most_bytes: int
    ) -> list[tuple[Place, Emitted]]:
        """Return messages of a shard, and move the position after them."""
        found: list[tuple[Place, Emitted]] = []
        size = 0
        for placed in self._messages:
            if shard_of(placed[1].lane, shards) == shard:
                found.append(placed)
                size += placed[1].size
                if len(found) >= limit or size >= most_bytes:
                    break
        return found

    def close(self) -> None:
        """Let the server drop the decoded changes."""
        with suppress(psycopg.Error):
            self._cursor.close()

    def _after(self, found: Iterator[Event], within: int) -> Iterator[tuple[Place, Emitted]]:
        """Yield messages after the position, which may be inside the first transaction."""
        skips_all, skips = True, 0
        for event in found:
            match event:
                case Begun(at):
                    self._commit_at = at
                    skips_all, skips = at < self.position.through, within
                case Emitted() if not skips_all and event.within > skips:
                    self.position = replace(self.position, within=event.within)
                    yield (self._commit_at, event.within), event
                case Unreadable(within=0, at=at) if at > self.position.through:
                    self.unreadable += 1
                case Unreadable(within=number) if not skips_all and number > skips:
                    self.unreadable += 1
                case Ended(at) if not skips_all:
                    self.position = replace(self.position, through=at, within=0)
                    within = 0
                case _:
                    pass
        self.is_done = True
        if self.position.through < self._end:
            self.position = replace(self.position, through=self._end, within=0)

    def _changes(self) -> Iterator[bytes]:
        while rows := self._cursor.fetchmany(FETCH_ROWS):
            yield from (row[0] for row in rows)


def _close_log(connection: Connection, place: str) -> None:
    """Restrict `pg_logical_emit_message` to the owner of `emit`, or report that it is open.

    PostgreSQL lets every role of a database call it, and with it forge a message of any other. Only
    a superuser can revoke that.

    Args:
        connection: of the relay, in autocommit.
        place: the database, for the report.
    """
    events = structlog.get_logger("eosframework.relay")
    is_open, owner, functions = outbox_queries.forgers(connection)
    if not is_open:
        return
    statements = [
        statement
        for function in functions
        for statement in (
            f"GRANT EXECUTE ON FUNCTION {function} TO {owner}",
            f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC",
        )
    ]
    try:
        with connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        is_open = True
    else:
        # REVOKE without the privilege is a warning and not an error, so look again.
        is_open, *_ = outbox_queries.forgers(connection)
    if is_open:
        events.warning(
            "messages_can_be_forged",
            database=place,
            reason="every role of the database may call pg_logical_emit_message",
            fix=f"as a superuser, run in this database: {'; '.join(statements)}",
        )
    else:
        events.info("log_closed", database=place, revoked_from="PUBLIC", granted_to=owner)
