"""The sessions of a relay's shards: the proof of ownership, and the progress in the control topic.

R0 asks the database whether this session still holds the shard's lock. If it does not, the session
was lost and every other lock with it: the relay gives all shards up without fencing another relay.

A shard is fenced when another process took its id over or when its transaction expired. The relay
that holds the lock takes the id back; fences in a row that cannot be expiry mean that another relay
uses the same id with another database.

R2 reads the position of the transaction in doubt, or the previous one. Any other position was
written by a relay that uses the same name with another database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eosframework.errors import (
    DatabaseUnavailable,
    DataRejected,
    InstanceFenced,
    RunError,
    TransactionFatal,
)
from eosframework.outbox.outbox_ports import OutboxSource, PositionLog
from eosframework.outbox.relay_position import RelayPosition
from eosframework.outbox.sharding import Shard
from eosframework.processing.session.session_group import SessionUser
from eosframework.processing.session.session_policy import Policy
from eosframework.processing.session.session_states import Outcome
from eosframework.processing.session.transaction_session import TransactionSession
from eosframework.txnid import control_topic


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


class ShardProgress(SessionUser[TransactionSession, "RelayPosition | None"]):
    """The progress of a relay's shards.

    Args:
        on_committed: called with a shard whose transaction was committed, and the seconds since its
            begin.
    """

    def __init__(
        self,
        name: str,
        source: OutboxSource,
        positions: PositionLog,
        on_committed: Callable[[Shard, float], None],
    ) -> None:
        self._name = name
        self._source = source
        self._positions = positions
        self._on_committed = on_committed
        self._shards: dict[TransactionSession, Shard] = {}

    def add(self, shard: Shard) -> None:
        """Take the shard's session on."""
        self._shards[shard.session] = shard

    def forget(self, shard: Shard) -> None:
        """Drop a shard that the relay gives up."""
        self._shards.pop(shard.session, None)

    def committed(self, session: TransactionSession, seconds: float) -> None:
        """Take the messages of the transaction as sent."""
        self._on_committed(self._shards[session], seconds)

    def records(self, session: TransactionSession) -> int:
        """Return the number of messages in the transaction."""
        return self._shards[session].rows

    def reject(self, session: TransactionSession, error: DataRejected) -> None:
        """Bisect the messages; see `Shard.reject`."""
        self._shards[session].reject(error)

    def is_excused(self, session: TransactionSession, error: TransactionFatal) -> bool:
        """Return whether a topic stopped accepting messages; they are set aside."""
        return self._shards[session].has_unwritable_topic()

    def prove(self, session: TransactionSession) -> None:
        """Prove that this relay holds the shard's lock (R0).

        Raises:
            DatabaseUnavailable: it does not.
        """
        number = self._shards[session].number
        if not self._source.has_lock(number):
            raise DatabaseUnavailable(
                f"relay {self._name!r} lost the right to relay shard {number} in the "
                f"database; another relay has it"
            )

    def read(self, sessions: Sequence[TransactionSession]) -> Sequence[RelayPosition | None]:
        """Read the positions in the control topic (R2)."""
        entries = self._positions.read()
        return [entries.get(self._shards[session].number) for session in sessions]

    def outcome(self, session: TransactionSession, found: RelayPosition | None) -> Outcome:
        """Return the outcome; the position must be one that this relay wrote.

        Raises:
            RunError: the position is missing.
            InstanceFenced: another relay has sent messages of the shard.
        """
        shard = self._shards[session]
        if found is None and not shard.is_new:
            raise RunError(
                f"the position of shard {shard.number} of relay {self._name!r} is missing in the "
                f"topic {control_topic(self._name)}: the topic was deleted, or emptied. Start the "
                f"relay again: it names the next step"
            )
        if found is None or found.is_at(shard.position):
            return Outcome.NOT_COMMITTED
        if shard.sent is not None and found.is_at(shard.sent):
            return Outcome.COMMITTED
        raise InstanceFenced(
            f"shard {shard.number} of relay {self._name!r} was sent through {found.through} of "
            f"database {found.origin.database!r} by another process while this one held it at "
            f"{shard.position.through}: another relay uses the same outbox.name. Stop it, or give "
            f"one of them another name"
        )

    def resume(
        self, session: TransactionSession, found: RelayPosition | None, outcome: Outcome
    ) -> None:
        """Resume at the position (R3)."""
        shard = self._shards[session]
        sent = shard.sent if outcome is Outcome.COMMITTED else None
        shard.start_at(sent or shard.position)
