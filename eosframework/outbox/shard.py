"""One shard's transaction: what is read and produced between two commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

from eosframework import failpoints
from eosframework.config import OutboxRefusal
from eosframework.errors import DataRejected, EosError, RunError
from eosframework.outbox.outbox_ports import OutboxSource, Place, PositionLog, Refused
from eosframework.outbox.refused_messages import Refusals, id_of, refusal_of
from eosframework.outbox.relay_position import RelayPosition
from eosframework.processing.measurements import TransactionMeasures
from eosframework.processing.ports import Commit, Output, TransactionalOutput
from eosframework.processing.transaction.producing import produce_all

_TOPIC = itemgetter(0)


class Shard:
    """Sends the messages of one shard; it decides nothing about brokers or databases.

    A message that Kafka refused although its topic seemed to take it is searched for by halves
    (`reject`). The last one left is at fault only if a transaction without it is committed.

    Args:
        number: from 0.
        output: its transactional.id, taken.
        position: where to go on.
        refusals: decides about messages that cannot be sent.
        is_new: the position is not in Kafka yet; the first transaction brings it there, with
            messages or without.
        batch_rows: messages that are read at once.
        flow: counts what goes through by topic; None: nobody wants to know.
    """

    def __init__(
        self,
        number: int,
        output: TransactionalOutput,
        position: RelayPosition,
        positions: PositionLog,
        refusals: Refusals,
        *,
        batch_rows: int,
        is_new: bool = False,
        flow: TransactionMeasures | None = None,
    ) -> None:
        self.number = number
        self.output = output
        self.position = position
        self.sent: RelayPosition | None = None
        self.rows = 0
        self.fences_in_a_row = 0
        self.aborts_in_a_row = 0
        self._read_to = position
        self.is_new = is_new
        self._is_open = False
        self._flow = flow
        self._last: tuple[Output, Place] | None = None
        self._suspect: Refused | None = None
        self._is_convicted = False
        self._positions = positions
        self._refusals = refusals
        self._batch_rows = batch_rows
        self._limit: int | None = None
        self._topics: set[str] = set()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._is_open

    @property
    def read_to(self) -> RelayPosition:
        """Behind what is read next."""
        return self._read_to

    def fill(self, source: OutboxSource, is_over: Callable[[], bool]) -> bool:
        """Send what is final until nothing is left or `is_over` (steps 2 to 5).

        Returns:
            Whether something was left.

        Raises:
            DatabaseAway: the session is lost.
            ClusterUnreachable: nobody described a topic; the same is sent the next time.
            TransactionError: a producer call failed; nothing of this transaction may be kept.
            RunError: a message cannot be sent, and the policy is to fail; names it.
        """
        if self._suspect is not None and not self._is_convicted:
            self._begin()
            self._end(source)
            return True
        self._set_aside_convicted(source)
        limit = self._limit or self._batch_rows
        while True:
            batch = source.read(self.number, self._read_to, limit)
            failpoints.hit("relay.after_read")
            batch = self._refusals.sorted_out(batch, source)
            failpoints.hit("relay.after_refusals")
            if batch.cut_by and not (batch.outputs or self._is_open):
                raise RunError(batch.cut_by)
            self._read_to = batch.position
            is_cut = self._limit is not None and bool(self.rows or batch.outputs)
            ends = batch.is_last or is_cut or bool(batch.cut_by) or is_over()
            if not ends:
                source.read_ahead(self.number, self._read_to, limit)
            if batch.outputs or batch.is_worth_writing or self.is_new:
                self._send(batch.outputs, batch.places, source)
            if ends:
                break
        if self._is_open:
            self._end(source)
        return not batch.is_last

    def commit(self) -> Commit:
        """Return this shard's part in a round of commits; its position is among the outputs."""
        return Commit(self.output, [], None)

    def committed(self, seconds: float) -> int:
        """Take the transaction as committed and return how many messages it held.

        Args:
            seconds: since it was begun.
        """
        assert self.sent is not None, "what was never filled cannot be committed"
        self.position, rows = self.sent, self.rows
        self._is_convicted = self._suspect is not None
        if self._limit is not None and not self._is_convicted:
            self._limit = self._limit * 2 if self._limit * 2 < self._batch_rows else None
        self.fences_in_a_row = self.aborts_in_a_row = 0
        if self._flow is not None:
            self._flow.committed(rows, seconds)
        self.rows = 0
        self._is_open = self.is_new = False
        self._topics.clear()
        return rows

    def start_at(self, position: RelayPosition) -> None:
        """Take a committed position as the truth, and forget what was produced behind it."""
        was_committed = self.sent is not None and position.is_at(self.sent)
        if self._flow is not None:
            self._flow.dropped()
            self._flow.settled(committed=was_committed)
        if was_committed and self.rows:
            self._suspect = None
        self.position = self._read_to = position
        self.sent = None
        self.rows = 0
        self._is_open = False
        self._topics.clear()

    def count_turn(self, turn: int) -> None:
        """Note the turn that the database counts now; the next positions say it."""
        self.position = replace(self.position, turn=turn)
        self._read_to = replace(self._read_to, turn=turn)

    def reject(self, error: DataRejected) -> None:
        """Kafka refuses something of this transaction: send half as many messages at a time.

        Raises:
            RunError: it held no message, so no message is at fault.
        """
        self._refusals.forget()
        if self.rows == 0:
            raise RunError(
                f"Kafka refuses the position of shard {self.number} ({error}), which goes with "
                f"every transaction; without it nothing can be sent once"
            ) from error
        if self.rows == 1 and self._last is not None:
            output, place = self._last
            reason = f"Kafka refuses it ({error})"
            self._suspect = Refused(place, id_of(output), output[0], reason, output)
        self._limit = max(1, self.rows // 2)

    def is_shut_out(self) -> bool:
        """Tell whether a topic of this transaction does not take messages any more."""
        self._refusals.forget()
        try:
            return self._refusals.refuse_any(self._topics)
        except EosError:
            return False

    def _set_aside_convicted(self, source: OutboxSource) -> None:
        """Set the message aside without which the transaction was committed."""
        if self._suspect is None:
            return
        if self._refusals.policy is OutboxRefusal.FAIL:
            raise RunError(refusal_of(self._suspect, source))
        failpoints.hit("relay.before_set_aside")
        self._refusals.set_aside([self._suspect], source)
        failpoints.hit("relay.after_set_aside")
        self._suspect, self._is_convicted = None, False

    def _begin(self) -> None:
        if not self._is_open:
            self.output.begin()
            self._is_open = True
            failpoints.hit("transaction.after_begin")

    def _send(
        self, outputs: Sequence[Output], places: Sequence[Place], source: OutboxSource
    ) -> None:
        self._begin()
        self.rows += len(outputs)
        if outputs:
            self._last = outputs[-1], places[-1]
            self._topics.update(map(_TOPIC, outputs))
        produce_all(self.output, outputs, source.take_in)
        if self._flow is not None:
            self._flow.wrote(outputs)
        self.output.poll()
        failpoints.hit("transaction.after_produce")

    def _end(self, source: OutboxSource) -> None:
        """Produce the position, the last record of the transaction."""
        self.sent = self._read_to
        produce_all(self.output, [self._positions.output(self.number, self.sent)], source.take_in)
        failpoints.hit("relay.after_position")
