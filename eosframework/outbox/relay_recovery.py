"""Recovery of a relay's shard after a failed commit (step 7 of the cycle).

    suspect       recycled already                      ─┐
    abortable     R0 R1 abort and recycle                ├─▶ R2 read the committed position
    unknown       R0 R1 recycle only                     │   R3 resume at it
    fenced        R0 R1 recycle, three times at most    ─┘

R0 asks the database whether this session still holds the shard's lock. If it does not, the session
was lost and every other lock with it: the relay gives all shards up without fencing another relay.

After R1 no frame of the old producer can take effect and its transaction has ended. So R2 reads a
final position: that of the transaction in doubt, or the previous one. Any other position was
written by a relay that uses the same name with another database.

A shard is fenced when another process took its id over or when its transaction expired. The relay
that holds the lock takes the id back; three fences in a row mean that another relay uses the same
id with another database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from eosframework.errors import (
    ClusterUnreachable,
    DatabaseUnavailable,
    DataRejected,
    EosError,
    InstanceFenced,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
)
from eosframework.outbox.outbox_ports import OutboxSource, PositionLog, RelayCounts
from eosframework.outbox.relay_position import RelayPosition
from eosframework.outbox.sharding import Shard
from eosframework.processing.ports import TransactionalOutputs
from eosframework.txnid import control_topic

FENCES_IN_A_ROW = 3

BACKOFF_SECONDS = 0.05
LONGEST_BACKOFF_SECONDS = 5.0


@dataclass(slots=True)
class _Case:
    """A shard under recovery.

    Args:
        abort: the transaction is known to be open, so an abort ends it quickly.
        not_before: clock time of the next attempt, in seconds.
    """

    abort: bool
    not_before: float
    attempts: int = 0


class ShardRecovery:
    """Takes shards out of service after a failed call and puts them back into service."""

    def __init__(
        self,
        name: str,
        source: OutboxSource,
        outputs: TransactionalOutputs,
        positions: PositionLog,
        counts: RelayCounts,
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._source = source
        self._outputs = outputs
        self._positions = positions
        self._counts = counts
        self._clock = clock
        self._cases: dict[int, _Case] = {}
        self._events = structlog.get_logger("eosframework.relay")

    def is_out(self, shard: Shard) -> bool:
        """Return whether the shard is out of service."""
        return shard.number in self._cases

    def forget(self, shard: Shard) -> None:
        """Drop a shard that the relay gives up."""
        self._cases.pop(shard.number, None)

    def failed(self, shard: Shard, error: TransactionError) -> None:
        """Classify a failed call and take the shard out of service.

        Raises:
            RunError: no retry can succeed until the cause is fixed.
            InstanceFenced: another relay keeps fencing this one.
            DatabaseUnavailable: the shard's lock is lost.
        """
        match error:
            case DataRejected():
                self._event("message_refused", shard, error)
                shard.reject(error)
                self._abort(shard, waits=False)
            case TransactionAborted():
                self._event("transaction_aborted", shard, error)
                self._abort(shard)
            case TaskFenced():
                self._fenced(shard, error)
            case TransactionFatal() if shard.has_unwritable_topic():
                self._event("topic_unwritable", shard, error)
                self._abort(shard, waits=False)
            case TransactionFatal():
                raise RunError(str(error)) from error
            case _:
                self._counts.unknown_outcomes += 1
                self._event("outcome_unknown", shard, error)
                self._cases[shard.number] = _Case(abort=False, not_before=self._clock())

    def recycled(self, shards: Sequence[Shard]) -> None:
        """Check after suspect producers were replaced that no other relay sent messages (R2).

        Their commits were confirmed, but the relay may have been suspended before the replacement,
        which then fenced a rightful successor.

        Raises:
            InstanceFenced: another relay has sent messages of one of these shards.
        """
        self._settle(shards)

    def recover_due(self, shards: Sequence[Shard]) -> None:
        """Recover the shards whose pause is over."""
        now = self._clock()
        due = [s for s in shards if self.is_out(s) and now >= self._cases[s.number].not_before]
        self._settle([shard for shard in due if self._reinit(shard)])

    def _abort(self, shard: Shard, *, waits: bool = True) -> None:
        """Schedule an abort; back off unless the messages are at fault."""
        self._counts.aborts += 1
        wait_seconds = _backoff_seconds(shard.aborts_in_a_row) if waits else 0.0
        shard.aborts_in_a_row += waits
        self._cases[shard.number] = _Case(abort=True, not_before=self._clock() + wait_seconds)

    def _fenced(self, shard: Shard, error: TransactionError) -> None:
        self._counts.fences += 1
        shard.fences_in_a_row += 1
        self._event("shard_fenced", shard, error)
        self._require_right(shard)
        if shard.fences_in_a_row >= FENCES_IN_A_ROW:
            raise InstanceFenced(
                f"transactional.id {shard.output.transactional_id} was taken over "
                f"{FENCES_IN_A_ROW} times in a row by a process that does not hold the shard in "
                f"this database: another relay uses outbox.name={self._name!r} for another "
                f"database. Stop it, or give one of them another name"
            ) from error
        wait_seconds = _backoff_seconds(shard.fences_in_a_row)
        self._cases[shard.number] = _Case(abort=False, not_before=self._clock() + wait_seconds)

    def _require_right(self, shard: Shard) -> None:
        if not self._source.has_lock(shard.number):
            raise DatabaseUnavailable(
                f"relay {self._name!r} lost the right to relay shard {shard.number} in the "
                f"database; another relay has it"
            )

    def _reinit(self, shard: Shard) -> bool:
        """Init the id again (R1); return False and reschedule on a failure."""
        self._require_right(shard)
        end = self._outputs.abort if self._cases[shard.number].abort else self._outputs.recycle
        [error] = end([shard.output])
        match error:
            case None:
                self._counts.recycles += 1
                return True
            case TaskFenced():
                self._fenced(shard, error)
            case TransactionFatal():
                raise RunError(str(error)) from error
            case _:
                self._retry_later(shard, error)
        return False

    def _settle(self, shards: Sequence[Shard]) -> None:
        """Resume at the positions in the control topic (R2, R3), or retry later."""
        if not shards:
            return
        try:
            entries = self._positions.read()
        except ClusterUnreachable as error:
            for shard in shards:
                self._retry_later(shard, error)
            return
        for shard in shards:
            position = entries.get(shard.number)
            shard.start_at(self._own_position(shard, position))
            if self._cases.pop(shard.number, None) is not None:
                self._events.info(
                    "shard_recovered",
                    transactional_id=shard.output.transactional_id,
                    through=shard.position.through,
                )

    def _own_position(self, shard: Shard, position: RelayPosition | None) -> RelayPosition:
        """Return the committed position, which must be one that this relay wrote."""
        if position is None and not shard.is_new:
            raise RunError(
                f"the position of shard {shard.number} of relay {self._name!r} is missing in the "
                f"topic {control_topic(self._name)}: the topic was deleted, or emptied. Start the "
                f"relay again: it names the next step"
            )
        if position is None or position.is_at(shard.position):
            return shard.position
        if shard.sent is not None and position.is_at(shard.sent):
            return shard.sent
        raise InstanceFenced(
            f"shard {shard.number} of relay {self._name!r} was sent through {position.through} of "
            f"database {position.origin.database!r} by another process while this one held it at "
            f"{shard.position.through}: another relay uses the same outbox.name. Stop it, or give "
            f"one of them another name"
        )

    def _retry_later(self, shard: Shard, error: EosError) -> None:
        case = self._cases.setdefault(shard.number, _Case(abort=False, not_before=0))
        case.abort = False
        case.attempts += 1
        case.not_before = self._clock() + _backoff_seconds(case.attempts)
        self._event("recovery_retried", shard, error, attempts=case.attempts)

    def _event(self, name: str, shard: Shard, error: EosError, **facts: object) -> None:
        self._events.warning(
            name, transactional_id=shard.output.transactional_id, error=str(error), **facts
        )


def _backoff_seconds(attempts: int) -> float:
    if attempts == 0:
        return 0.0
    return min(BACKOFF_SECONDS * 2**attempts, LONGEST_BACKOFF_SECONDS)
