"""Where a partition starts, and what its first transaction records, by the registry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from eosframework.config import Start
from eosframework.errors import StartRefused
from eosframework.kafka.registry import Registered, Registry
from eosframework.processing.ports import InputLog, Output
from eosframework.records import Position, TopicPartition
from eosframework.txnid import TransactionalId


class RegistryLedger:
    """The `ProgressLedger` that outlasts Kafka's offset retention.

    Args:
        application: its name.
        registry: read to its end at least once.
        start: where a partition starts that was never committed.
    """

    def __init__(self, application: str, registry: Registry, start: Start) -> None:
        self._application = application
        self._registry = registry
        self._start = start

    def starting_positions(
        self, sub_topology: str, committed: Sequence[Position], log: InputLog
    ) -> list[Position]:
        """Give every partition without a committed offset the position to start at.

        Raises:
            StartRefused: a partition was committed before and its offset is gone.
        """
        new = [p.topic_partition for p in committed if p.offset is None]
        if not new:
            return list(committed)
        refuse_lost_offsets(self._application, self._registry.refresh(), committed)
        bounds = log.beginning_offsets if self._start is Start.EARLIEST else log.end_offsets
        offsets = bounds(new)
        return [
            position
            if position.offset is not None
            else replace(position, offset=offsets[position.topic_partition])
            for position in committed
        ]

    def marker(self, sub_topology: str, partition: TopicPartition) -> Output | None:
        """Return what to write into a partition's first transaction; None: it is there."""
        if partition in self._registry.state.committed:
            return None
        return self._registry.committed_marker(sub_topology, partition)

    def former_ids(self, sub_topology: str, partition: TopicPartition) -> list[str]:
        """Return the transactional ids under which `partition` was processed earlier."""
        return former_ids(self._application, self._registry.state, sub_topology, partition)


def former_ids(
    application: str, registered: Registered, sub_topology: str, partition: TopicPartition
) -> list[str]:
    """Return the ids of `partition` under sub-topologies that read its topic once.

    A worker of an earlier topology may still write under one of them.
    """
    return [
        str(TransactionalId.make(application, owner, partition.partition))
        for owner in registered.owners.get(partition.topic, ())
        if owner != sub_topology
    ]


def refuse_lost_offsets(
    application: str, registered: Registered, committed: Iterable[Position]
) -> None:
    """Raise if a partition that was committed before has no committed offset any more.

    Raises:
        StartRefused: names the partitions and what to do.
    """
    lost = sorted(
        position.topic_partition
        for position in committed
        if position.offset is None and position.topic_partition in registered.committed
    )
    if not lost:
        return
    names = ", ".join(str(partition) for partition in lost)
    examples = " ".join(f"'{partition}=OFFSET'" for partition in lost[:2])
    raise StartRefused(
        f"application {application!r} has committed {names} before, and the committed offset is "
        f"gone: the group was stopped for longer than the brokers' offsets.retention.minutes, or "
        f"its offsets were deleted. Reading from the start would process everything again, and "
        f"from the end would lose records. Find the last input that took effect and set where to "
        f"go on: eosframework positions set APP {examples}. To process everything again on "
        f"purpose, use another application name"
    )
