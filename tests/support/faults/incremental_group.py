"""Workers in groups of KIP-848 (`group.protocol=consumer`), which the product does not join.

Brokers of that protocol add and take single partitions. A worker takes over all of its partitions
at once, since its tasks share a producer, so an incremental change is passed on as two: all
partitions are revoked, then what remains and what is new is assigned. No other worker is disturbed.

`--group-protocol=consumer` runs any test of real workers so (docs/adr/0046-seams-of-the-client.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.kafka.client.partitioner import from_kafka, partitions_to_kafka
from eosframework.kafka.consumer import rebalance
from eosframework.kafka.consumer.group import GroupSettings
from eosframework.kafka.consumer.rebalance import Rebalancing
from eosframework.records import TopicPartition

_OF_CLASSIC = {
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.instance.id",
}


class IncrementalRebalancing(Rebalancing):
    """Passes incremental callbacks on as whole assignments."""

    _consumer: Consumer | None = None

    def assigned(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """Take what is new over, together with what is held already."""
        self._consumer = consumer
        held, self._given = self._given, []
        if held:
            self._attempt(lambda: self._listener.revoked(held))
        self._take(consumer, held, list(map(from_kafka, partitions)))

    def revoked(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """Let the listener finish with all, then take over what remains."""
        gone = set(map(from_kafka, partitions))
        held, self._given = self._given, []
        self._attempt(lambda: self._listener.revoked(held))
        self._release(lambda: consumer.incremental_unassign(partitions))
        self._take(consumer, [one for one in held if one not in gone], [])

    def lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """Report that other members may own the partitions."""
        held, self._given, self.membership = self._given, [], None
        self._attempt(lambda: self._listener.lost(held))
        self._release(lambda: consumer.incremental_unassign(partitions))

    def current_membership(self) -> bytes | None:
        """Return the membership of now.

        A partition moves only once this member let it go, so a later epoch never commits a
        partition of another member, and an earlier one is refused.
        """
        if self.membership is not None and self._consumer is not None:
            now = self._consumer.consumer_group_metadata()
            if now != self.membership:
                self.membership = now
        return self.membership

    def is_confirmed(self, partitions: Iterable[TopicPartition], found: GroupDescription) -> bool:
        """As in the base; a group of this protocol need not be stable for one of its members."""
        return self._is_assigned(partitions, found)

    def _take(
        self, consumer: Consumer, held: list[TopicPartition], new: list[TopicPartition]
    ) -> None:
        self._given = given = [*held, *new]
        if not given:
            self.membership = None
            return

        def take_over() -> None:
            self.membership = consumer.consumer_group_metadata()
            if self._refuse is not None:
                self._refuse(given)
            positions = self._listener.assigned(given)
            starts = {one.topic_partition: rebalance._start(one) for one in positions}
            consumer.incremental_assign([starts[one] for one in new])
            consumer.pause(list(starts.values()))
            for one in held:
                consumer.seek(starts[one])
            if self._started is not None:
                self._started(positions)

        if not self._takes or not self._attempt(take_over):
            self._given, self.membership = [], None
            self._release(lambda: consumer.incremental_assign(partitions_to_kafka(new)))


def join_incrementally() -> None:
    """Let the workers of this process join groups of KIP-848, as dynamic members.

    A static member that replaces a killed one is refused until that one's session ends, with an
    error that is fatal for its client.
    """
    from eosframework.kafka.consumer import input_log

    classic = GroupSettings.properties

    def properties(self: GroupSettings) -> dict[str, Any]:
        given = {name: v for name, v in classic(self).items() if name not in _OF_CLASSIC}
        return {**given, "group.protocol": "consumer", "group.remote.assignor": "range"}

    for owner, name, other in (
        (input_log, "Rebalancing", IncrementalRebalancing),
        (GroupSettings, "properties", properties),
    ):
        assert hasattr(owner, name), f"{owner} has no {name}: a test would replace nothing"
        setattr(owner, name, other)
