"""Waiting until what is written in a partition is decided: committed, aborted or alone.

A `read_committed` reader gets to the last stable offset, and what was committed may lie behind
that, where a transaction is still open. So who must see all that was committed waits until the last
stable offset is where the log ended when it was asked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from eosframework.errors import ClusterUnreachable
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.records import TopicPartition

LOOK_SECONDS = 0.01


def decided_ends(
    admin: ClusterAdmin, partitions: Sequence[TopicPartition], within_seconds: float
) -> dict[TopicPartition, int | None]:
    """Return offsets before which everything is decided that is written now.

    Args:
        admin: asks the cluster.
        partitions: are waited for together.
        within_seconds: how long to wait for open transactions.

    Returns:
        By partition; None where a transaction is still open.

    Raises:
        ClusterUnreachable: no broker answered.
    """
    written = admin.high_watermarks(partitions)
    deadline = time.monotonic() + within_seconds
    while True:
        bounds = admin.log_bounds(partitions)
        ends = {p: end if end >= written[p] else None for p, (_, end) in bounds.items()}
        if None not in ends.values() or time.monotonic() > deadline:
            return ends
        time.sleep(LOOK_SECONDS)


def settled_ends(
    admin: ClusterAdmin, partitions: Sequence[TopicPartition], within_seconds: float
) -> dict[TopicPartition, int]:
    """Return offsets before which everything is decided that is written now; see `decided_ends`.

    Raises:
        ClusterUnreachable: no broker answered, or a transaction stays open.
    """
    settled: dict[TopicPartition, int] = {}
    for partition, end in decided_ends(admin, partitions, within_seconds).items():
        if end is None:
            raise ClusterUnreachable(
                f"a transaction in {partition} was not decided within {within_seconds:g} s, so "
                f"what is committed there is not known; `eosframework txn hanging --topic "
                f"{partition.topic}` shows whose it is, and how to abort it"
            )
        settled[partition] = end
    return settled
