"""One shard's transaction: what is read and produced between two commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

from eosframework import failpoints
from eosframework.errors import DataRejected, RunError
from eosframework.outbox.ports import OutboxSource, PositionLog
from eosframework.outbox.position import RelayPosition
from eosframework.processing.measures import Flow
from eosframework.processing.ports import Commit, Output, TransactionalOutput
from eosframework.processing.producing import produce_all

_TOPIC = itemgetter(0)


class Shard:
    """Sends the messages of one shard; it decides nothing about brokers or databases.

    Args:
        number: from 0.
        output: its transactional.id, taken.
        position: where to go on.
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
        *,
        batch_rows: int,
        is_new: bool = False,
        flow: Flow | None = None,
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
        self._last: Output | None = None
        self._positions = positions
        self._batch_rows = batch_rows
        self._limit: int | None = None
        self._known_topics: set[str] = set()

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
            TransactionError: a producer call failed; nothing of this transaction may be kept.
            RunError: a topic does not exist.
        """
        limit = self._limit or self._batch_rows
        while True:
            batch = source.read(self.number, self._read_to, limit)
            failpoints.hit("relay.after_read")
            self._read_to = batch.position
            is_cut = self._limit is not None and bool(self.rows or batch.outputs)
            ends = batch.is_last or is_cut or is_over()
            if not ends:
                source.read_ahead(self.number, self._read_to, limit)
            if batch.outputs or batch.is_worth_writing or self.is_new:
                self._refuse_missing(batch.outputs)
                self._send(batch.outputs, source)
            if ends:
                break
        if self._is_open:
            self.sent = self._read_to
            produce_all(
                self.output, [self._positions.output(self.number, self.sent)], source.take_in
            )
            failpoints.hit("relay.after_position")
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
        if self._limit is not None:
            self._limit = self._limit * 2 if self._limit * 2 < self._batch_rows else None
        self.fences_in_a_row = self.aborts_in_a_row = 0
        if self._flow is not None:
            self._flow.committed(rows, seconds)
        self.rows = 0
        self._is_open = self.is_new = False
        return rows

    def start_at(self, position: RelayPosition) -> None:
        """Take a committed position as the truth, and forget what was produced behind it."""
        if self._flow is not None:
            self._flow.dropped()
            self._flow.settled(committed=self.sent is not None and position.is_at(self.sent))
        self.position = self._read_to = position
        self.sent = None
        self.rows = 0
        self._is_open = False

    def count_turn(self, turn: int) -> None:
        """Note the turn that the database counts now; the next positions say it."""
        self.position = replace(self.position, turn=turn)
        self._read_to = replace(self._read_to, turn=turn)

    def reject(self, error: DataRejected, source: OutboxSource) -> None:
        """Kafka refuses a message of this transaction: send half as many at a time.

        Raises:
            RunError: it was the only one; names it.
        """
        if self.rows == 1 and self._last is not None:
            name = source.name_of(self._last, self._read_to)
            raise RunError(
                f"{name}: Kafka refuses it ({error}). Nothing behind it in its shard is sent"
            ) from error
        self._limit = max(1, self.rows // 2)

    def _refuse_missing(self, outputs: Sequence[Output]) -> None:
        unknown = set(map(_TOPIC, outputs)) - self._known_topics
        if not unknown:
            return
        if missing := self._positions.missing(unknown):
            raise RunError(
                f"topic {', '.join(missing)} does not exist and messages in the outbox go there; "
                f"create it and start the relay again"
            )
        self._known_topics |= unknown

    def _send(self, outputs: Sequence[Output], source: OutboxSource) -> None:
        if not self._is_open:
            self.output.begin()
            self._is_open = True
            failpoints.hit("transaction.after_begin")
        self.rows += len(outputs)
        self._last = outputs[-1] if outputs else self._last
        produce_all(self.output, outputs, source.take_in)
        if self._flow is not None:
            self._flow.wrote(outputs)
        self.output.poll()
        failpoints.hit("transaction.after_produce")
