"""Carries librdkafka's rebalance callbacks to a `RebalanceListener`, and its exceptions out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import OFFSET_END, Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from eosframework.kafka.client.positions import from_kafka, to_kafka
from eosframework.processing.ports import RebalanceListener
from eosframework.records import Position, TopicPartition

Refuse = Callable[[Sequence[TopicPartition]], None]


class Rebalancing:
    """The callbacks of one consumer.

    An exception of the listener must not pass through librdkafka, which would finish the
    rebalance by itself, from wherever it thinks right. It is kept, and `raise_pending` raises it
    in the fetch that served the callback; until then nothing is assigned.

    `count` says how many callbacks were served: the membership of the group changes with them only.

    Args:
        listener: takes partitions over and lets them go.
        refuse: raises where the listener must not be given partitions; None: it may be given all.
    """

    def __init__(self, listener: RebalanceListener, refuse: Refuse | None = None) -> None:
        self.count = 0
        self._refuse = refuse
        self._listener = listener
        self._pending: BaseException | None = None
        self._takes = True

    def take_no_more(self) -> None:
        """Decline what is assigned from now on: the listener has closed."""
        self._takes = False

    def assigned(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """Assign the partitions, paused, where the listener says."""

        def take_over() -> None:
            given = [from_kafka(p) for p in partitions]
            if self._refuse is not None:
                self._refuse(given)
            positions = self._listener.assigned(given)
            starts = [_start(position) for position in positions]
            consumer.assign(starts)
            consumer.pause(starts)

        if not self._takes or not self._attempt(take_over):
            consumer.assign([])

    def revoked(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """Let the listener finish, then let the partitions go whatever came of it."""
        self._let_go(self._listener.revoked, consumer, partitions)

    def lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """Tell the listener that somebody else may own the partitions already."""
        self._let_go(self._listener.lost, consumer, partitions)

    def raise_pending(self) -> None:
        """Raise what the listener raised, if it did."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            raise pending

    def _let_go(
        self, tell: Callable[[Any], None], consumer: Consumer, partitions: list[KafkaPartition]
    ) -> None:
        self._attempt(lambda: tell([from_kafka(p) for p in partitions]))
        consumer.unassign()

    def _attempt(self, step: Callable[[], None]) -> bool:
        self.count += 1
        try:
            step()
        except BaseException as error:
            self._pending = self._pending or error
            return False
        return True


def _start(position: Position) -> KafkaPartition:
    """Return where to begin. What is not known yet begins at the end, which every log has.

    Of an offset that the log does not have, a fetch tells even while the partition is paused.
    """
    start = to_kafka(position)
    if position.offset is None:
        start.offset = OFFSET_END
    return start
