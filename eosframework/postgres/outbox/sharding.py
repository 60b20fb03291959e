"""Shards of the outbox: the assignment of messages to them, and the transaction of one shard.

Messages with the same key are in the same shard. The database stores a hash of the key with each
row, 0 to 255. A message's shard is that number modulo the number of shards, so only the relay needs
to know how many shards there are.

A shard is an owned key (`transactions/session/owned_keys`): its position is committed with its
messages. The proof of ownership is the shard's lock in the database. Without it the database's
session was lost, and every other lock with it: the relay gives all shards up without fencing
another relay.

A shard is fenced when another process took its id over or when its transaction expired. The relay
that holds the lock takes the id back; fences in a row that cannot be expiry, or a position that
this relay did not write, mean that another relay uses the same name with another database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from operator import itemgetter

from eosframework.config import OutboxRefusal
from eosframework.engine.task.measurements import TransactionMeasures
from eosframework.errors import (
    DatabaseUnavailable,
    DataRejected,
    EosError,
    RunError,
    TransactionFatal,
)
from eosframework.postgres.outbox.refused_messages import Refusals, id_of, refusal_of
from eosframework.postgres.outbox.relay_position import (
    OutboxSource,
    Place,
    Refused,
    RelayPosition,
    position_key,
)
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Commit, Output
from eosframework.transactions.session.owned_keys import Claim, KeyWork, OwnedKey
from eosframework.transactions.session.session_states import Outcome, Policy, State
from eosframework.txnid import TransactionalId

_LANES = 256
_MOST_SHARDS = 64


def lane_of(key: bytes | None, number: int) -> int:
    """Return the hash of a key, from 0; messages without a key are spread by their number.

    The SQL in the migrations must compute the same value.
    """
    if key is None:
        return number % _LANES
    return sha256(key).digest()[0]


def shard_of(lane: int, shards: int) -> int:
    """Return the shard of a key's hash, from 0."""
    return lane % shards


def fair_share(shards: int, relays: int) -> int:
    """Return the largest number of shards that one of several relays runs."""
    return -(-shards // max(relays, 1))


_TOPIC = itemgetter(0)


class Shard(KeyWork[RelayPosition]):
    """Sends the messages of one shard.

    A message that Kafka refuses although its topic's description accepts it is found by bisecting
    the transaction (`reject`). The remaining message is set aside only after a transaction
    without it was committed, which proves that the message is at fault.

    Args:
        number: from 0.
        owned: the shard's key.
        position: at which the shard resumes.
        source: the outbox.
        on_committed: called with the shard, the number of messages of a committed transaction, and
            the seconds since its begin.
        refusals: decides about messages that cannot be sent.
        is_new: the position is not in Kafka yet; the first transaction writes it, with messages
            or without.
        batch_rows: messages that are read at once.
        flow: counts sent messages by topic; None: they are not counted.
    """

    def __init__(
        self,
        number: int,
        owned: OwnedKey[RelayPosition],
        position: RelayPosition,
        source: OutboxSource,
        on_committed: Callable[[Shard, int, float], None],
        refusals: Refusals,
        *,
        batch_rows: int,
        is_new: bool = False,
        flow: TransactionMeasures | None = None,
    ) -> None:
        super().__init__(owned)
        self.number = number
        self.position = position
        self.sent: RelayPosition | None = None
        self.rows = 0
        self._read_to = position
        self.is_new = is_new
        self._flow = flow
        self._last: tuple[Output, Place] | None = None
        self._suspect: Refused | None = None
        self._is_confirmed = False
        self._source = source
        self._on_committed = on_committed
        self._refusals = refusals
        self._batch_rows = batch_rows
        self._limit: int | None = None
        self._topics: set[str] = set()

    @property
    def in_transaction(self) -> bool:
        """True while a transaction is open."""
        return self.owned.state is State.OPEN

    @property
    def read_to(self) -> RelayPosition:
        """The position after which the next messages are read."""
        return self._read_to

    def fill(self, is_over: Callable[[], bool]) -> bool:
        """Send final messages until none are left or `is_over` (steps 2 to 5).

        Returns:
            Whether messages are left.

        Raises:
            DatabaseUnavailable: the session is lost.
            ClusterUnreachable: no broker described a topic; the next call sends the same messages.
            TransactionError: a producer call failed; the transaction must be aborted.
            RunError: a message cannot be sent, and the policy is to fail; names it.
        """
        if self._suspect is not None and not self._is_confirmed:
            self._begin()
            self._end()
            return True
        self._set_aside_confirmed()
        limits = [n for n in (self._limit, self.owned.size.limit) if n is not None]
        limit = min(self._batch_rows, *limits) if limits else self._batch_rows
        while True:
            batch = self._source.read(self.number, self._read_to, limit)
            failpoints.hit("relay.after_read")
            batch = self._refusals.without_refused(batch, self._source)
            failpoints.hit("relay.after_refusals")
            if batch.cut_by and not (batch.outputs or self.in_transaction):
                raise RunError(batch.cut_by)
            self._read_to = batch.position
            is_cut = bool(limits) and bool(self.rows or batch.outputs)
            ends = batch.is_last or batch.is_slow_next or is_cut or bool(batch.cut_by) or is_over()
            if not ends:
                self._source.read_ahead(self.number, self._read_to, limit)
            if batch.outputs or batch.is_worth_writing or self.is_new:
                self._send(batch.outputs, batch.places)
            if ends:
                break
        if self.in_transaction:
            self._end()
        return not batch.is_last

    def commit(self) -> Commit:
        """Return this shard's part in a round of commits; the position is one of the outputs."""
        return Commit(self.owned.output, [], None)

    def committed(self, seconds: float) -> None:
        """Take the messages of the transaction as sent."""
        super().committed(seconds)
        assert self.sent is not None, "what was never filled cannot be committed"
        self.position, rows = self.sent, self.rows
        self._is_confirmed = self._suspect is not None
        if self._limit is not None and not self._is_confirmed:
            self._limit = self._limit * 2 if self._limit * 2 < self._batch_rows else None
        if self._flow is not None:
            self._flow.committed()
        self.rows = 0
        self.is_new = False
        self._topics.clear()
        self._on_committed(self, rows, seconds)

    def records(self) -> int:
        """Return the number of messages in the transaction."""
        return self.rows

    def prove(self) -> None:
        """Prove that this relay holds the shard's lock.

        Raises:
            DatabaseUnavailable: it does not.
        """
        if not self._source.has_lock(self.number):
            raise DatabaseUnavailable(
                f"the right to {self.owned.claim.name} in the database was lost; another relay "
                f"has it"
            )

    def resume(self, found: RelayPosition | None, outcome: Outcome) -> None:
        """Resume at the committed position; discard what was produced after it."""
        super().resume(found, outcome)
        position = self.position
        if outcome is Outcome.COMMITTED and self.sent is not None:
            position = self.sent
        was_committed = self.sent is not None and position.is_at(self.sent)
        if self._flow is not None:
            self._flow.dropped()
            self._flow.settled(committed=was_committed)
        if was_committed and self.rows:
            self._suspect = None
        self.position = self._read_to = position
        self.sent = None
        self.rows = 0
        self._topics.clear()

    def count_turn(self, turn: int) -> None:
        """Note the database's turn counter; the next positions contain it."""
        self.position = replace(self.position, turn=turn)
        self._read_to = replace(self._read_to, turn=turn)

    def reject(self, error: DataRejected) -> None:
        """Bisect after Kafka refused a record of this transaction: send half as many at a time.

        Without a message in it no message is at fault.
        """
        self._refusals.forget()
        if self.rows == 0:
            super().reject(error)
        if self.rows == 1 and self._last is not None:
            output, place = self._last
            reason = f"Kafka refuses it ({error})"
            self._suspect = Refused(place, id_of(output), output[0], reason, output)
        self._limit = max(1, self.rows // 2)

    def is_excused(self, error: TransactionFatal) -> bool:
        """Return whether a topic of this transaction has stopped accepting messages."""
        self._refusals.forget()
        try:
            return self._refusals.any_unwritable(self._topics)
        except EosError:
            return False

    def _set_aside_confirmed(self) -> None:
        """Set aside the message that bisecting found, once a transaction without it committed."""
        if self._suspect is None:
            return
        if self._refusals.policy is OutboxRefusal.FAIL:
            raise RunError(refusal_of(self._suspect, self._source))
        failpoints.hit("relay.before_set_aside")
        self._refusals.set_aside([self._suspect], self._source)
        failpoints.hit("relay.after_set_aside")
        self._suspect, self._is_confirmed = None, False

    def _begin(self) -> None:
        if not self.in_transaction:
            self.owned.begin()
            failpoints.hit("transaction.after_begin")

    def _send(self, outputs: Sequence[Output], places: Sequence[Place]) -> None:
        self._begin()
        self.rows += len(outputs)
        if outputs:
            self._last = outputs[-1], places[-1]
            self._topics.update(map(_TOPIC, outputs))
        self.owned.produce(outputs, self._source.take_in)
        if self._flow is not None:
            self._flow.wrote(outputs)
        self.owned.output.poll()
        failpoints.hit("transaction.after_produce")

    def _end(self) -> None:
        """Produce the position, the last record of the transaction."""
        self.sent = self._read_to
        self.owned.append(self.sent, self._source.take_in)
        failpoints.hit("relay.after_position")


def relay_id(name: str, shard: int) -> str:
    """Return the transactional.id of a shard, the same in every relay of this name."""
    return str(TransactionalId.relay(name, "outbox", shard))


def shard_claim(name: str, shard: int) -> Claim[RelayPosition]:
    """Return the claim of a shard of a relay."""
    return Claim(
        relay_id(name, shard),
        f"shard {shard} of relay {name!r}",
        position_key(shard),
        RelayPosition.from_entry,
        RelayPosition.to_entry,
        lambda found: f"it sent through {found.through} of database {found.origin.database!r}",
    )


def relay_policy(name: str, timeout_seconds: float) -> Policy:
    """Return the policy of a relay's sessions.

    Args:
        name: of the relay.
        timeout_seconds: the transaction timeout.
    """
    return Policy(
        timeout_seconds,
        successor="a process that does not hold the shard in this database: another relay uses "
        f"outbox.name={name!r} for another database",
        advice="Stop it, or give one of them another name",
        watch_seconds=0.0,  # A successor locks the shard before it inits the id.
        patience_seconds=None,
    )
