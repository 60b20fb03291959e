"""A first commit whose offset is about to show is no lost offset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from eosframework.application.control_topic import ControlState
from eosframework.application.start_checks import _committed
from eosframework.records import Position, TopicPartition

P0, P1, P2 = (TopicPartition("in", number) for number in range(3))


class Cluster:
    """Markers have reached the registry, and the offset of `pending` only who waits for it."""

    def __init__(self, pending: TopicPartition, *, comes: bool) -> None:
        self._pending = pending
        self._comes = comes
        self.waited_for: list[TopicPartition] = []

    def committed(
        self, group: str, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> list[Position]:
        partitions = list(partitions)
        self.waited_for += partitions if stable else []
        return [
            Position(*p, 7 if p != self._pending or (stable and self._comes) else None)
            for p in partitions
        ]


def found(cluster: Cluster, *registered: TopicPartition) -> dict[TopicPartition, int | None]:
    known = ControlState(committed=dict.fromkeys(registered, "id"))
    positions = _committed("app", [P0, P1, P2], known, cast("Any", cluster))
    return {position.topic_partition: position.offset for position in positions}


def test_an_offset_whose_transaction_is_being_completed_is_waited_for() -> None:
    cluster = Cluster(P1, comes=True)
    assert found(cluster, P0, P1) == {P0: 7, P1: 7, P2: 7}
    assert cluster.waited_for == [P1]


def test_one_that_is_gone_stays_gone_and_one_that_never_was_is_not_waited_for() -> None:
    assert found(Cluster(P1, comes=False), P0, P1)[P1] is None
    cluster = Cluster(P2, comes=True)
    assert found(cluster, P0, P1)[P2] is None
    assert cluster.waited_for == []
