"""Rebalance callbacks of librdkafka, passed to a `RebalanceListener`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from eosframework.errors import AssignmentLapsed
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.kafka.client.partitioner import from_kafka, to_kafka
from eosframework.kafka.consumer.group import member_id
from eosframework.records import Position, TopicPartition
from eosframework.transactions.ports import RebalanceListener

Refuse = Callable[[Sequence[TopicPartition]], None]


class Rebalancing:
    """The rebalance callbacks of one consumer.

    No exception may pass through librdkafka, which would finish the rebalance by itself; one of its
    own calls would leave it as a SystemError (confluent-kafka 2.16). The listener's is kept, and
    `raise_pending` raises it in the fetch that served the callback; until then no partition is
    assigned.

    `membership` is that of the assignment: taken once, before the listener is called, and kept
    until the partitions are let go. It is never asked for again, because librdkafka may report
    another one without a callback:

    1. the listener takes partitions over; meanwhile a topic gets a partition, so librdkafka joins
       again at once (`rd_kafka_cgrp_metadata_update_check`)
    2. the group gives a partition to another member
    3. asked now, librdkafka reports the new generation, under which the broker would accept
       offsets of that partition

    The new assignment then follows without a callback for the end of the earlier one.

    Args:
        listener: takes partitions over and releases them.
        refuse: raises if the listener must not be assigned partitions; None: it takes all.
        started: called with the positions of partitions that were assigned, paused.
    """

    def __init__(
        self,
        listener: RebalanceListener,
        refuse: Refuse | None = None,
        started: Callable[[Sequence[Position]], None] | None = None,
    ) -> None:
        self.membership: bytes | None = None
        self._given: list[TopicPartition] = []
        self._started = started
        self._refuse = refuse
        self._listener = listener
        self._pending: BaseException | None = None
        self._takes = True
        self._events = structlog.get_logger("eosframework.kafka")

    @property
    def member_id(self) -> str:
        """Member id under which the partitions were assigned; empty: there is none."""
        return "" if self.membership is None else member_id(self.membership)

    def current_membership(self) -> bytes | None:
        """Return the membership under which offsets are committed now; None: there is none."""
        return self.membership

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether a partition is assigned to this member, as of the last callback."""
        return partition in self._given

    def is_confirmed(self, partitions: Iterable[TopicPartition], found: GroupDescription) -> bool:
        """Return whether a group still assigns partitions under this membership."""
        return found.is_stable and self._is_assigned(partitions, found)

    def _is_assigned(self, partitions: Iterable[TopicPartition], found: GroupDescription) -> bool:
        mine = {member.member_id: member.partitions for member in found.members}
        return set(partitions).issubset(mine.get(self.member_id, ()))

    def take_no_more(self) -> None:
        """Decline further assignments: the listener has closed."""
        self._takes = False

    def assigned(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """Assign the partitions, paused, at the listener's positions.

        If the membership has lapsed meanwhile, none is assigned: librdkafka joins again.
        """
        if self._given:
            self._attempt(lambda: self._listener.lost(self._given))
        self._given = given = [from_kafka(p) for p in partitions]
        self.membership = None

        def take_over() -> None:
            try:
                self.membership = consumer.consumer_group_metadata()
            except RuntimeError as error:  # librdkafka gives none to a consumer that is closing.
                raise AssignmentLapsed(str(error)) from error
            if not self.member_id:
                raise AssignmentLapsed("the session ended before the partitions were taken over")
            if self._refuse is not None:
                self._refuse(given)
            positions = self._listener.assigned(given)
            starts = [_start(position) for position in positions]
            consumer.assign(starts)
            consumer.pause(starts)
            if self._started is not None:
                self._started(positions)

        if not self._takes or not self._attempt(take_over):
            self._given, self.membership = [], None
            self._release(lambda: consumer.assign([]))

    def revoked(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """Let the listener finish, then unassign the partitions even if it failed."""
        self._let_go(self._listener.revoked, consumer, partitions)

    def lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """Report to the listener that another member may own the partitions already."""
        self._let_go(self._listener.lost, consumer, partitions)

    def raise_pending(self) -> None:
        """Raise the listener's exception, if there is one."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            raise pending

    def _let_go(
        self, tell: Callable[[Any], None], consumer: Consumer, partitions: list[KafkaPartition]
    ) -> None:
        self._attempt(lambda: tell([from_kafka(p) for p in partitions]))
        self._given, self.membership = [], None
        self._release(consumer.unassign)

    def _attempt(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except AssignmentLapsed as error:
            self._events.warning("assignment_lapsed", error=str(error))
            return False
        except BaseException as error:
            self._pending = self._pending or error
            return False
        return True

    def _release(self, call: Callable[[], object]) -> None:
        """Let partitions go; a consumer that cannot is closing, or broken for good."""
        try:
            call()
        except (KafkaException, RuntimeError) as error:
            self._events.warning("partitions_not_released", error=str(error))


def _start(position: Position) -> KafkaPartition:
    """Return the position to begin at; an unknown one begins at the end, which every log has.

    A fetch reports an offset that is not in the log even while the partition is paused.
    """
    start = to_kafka(position)
    if position.offset is None:
        start.offset = OFFSET_END
    return start
