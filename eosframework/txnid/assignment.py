"""The tasks of a sub-topology: one for each partition number of its co-partitioned sources."""

from __future__ import annotations

from collections.abc import Mapping

from eosframework.errors import TopologyError
from eosframework.txnid.identity import TransactionalId


def co_partitioned(sub_topology: str, partitions: Mapping[str, int]) -> int:
    """Return the number of partitions that all sources of a sub-topology have.

    A task processes the same partition of every source, so that equal keys of different topics
    are in one task; that needs equal counts.

    Args:
        sub_topology: its name, for messages.
        partitions: number of partitions by source topic.

    Raises:
        TopologyError: the counts differ (names the topics), a topic has no partition, or
            there is no source.
    """
    if not partitions:
        raise TopologyError(f"sub-topology {sub_topology!r} has no source topic; declare one")
    if empty := sorted(topic for topic, count in partitions.items() if count < 1):
        raise TopologyError(
            f"source topic {empty[0]!r} of sub-topology {sub_topology!r} has "
            f"{partitions[empty[0]]} partitions; a topic needs at least one"
        )
    if len(set(partitions.values())) > 1:
        counts = ", ".join(f"{topic}={partitions[topic]}" for topic in sorted(partitions))
        raise TopologyError(
            f"the sources of sub-topology {sub_topology!r} are not co-partitioned: they have "
            f"different numbers of partitions ({counts}). A task reads the same partition of "
            f"each, so give them the same number, or write one through a repartition topic "
            f"with the number of the others"
        )
    return next(iter(partitions.values()))


def tasks(
    application: str, sub_topology: str, partitions: Mapping[str, int]
) -> tuple[TransactionalId, ...]:
    """Return the id of every task of a sub-topology, by partition.

    Raises:
        TopologyError: as `co_partitioned`, or a name does not match the grammar.
    """
    count = co_partitioned(sub_topology, partitions)
    return tuple(TransactionalId.make(application, sub_topology, p) for p in range(count))
