"""Waits until all written records are decided: committed, aborted or non-transactional.

A `read_committed` reader stops at the last stable offset. While a transaction is open, committed
records may exist after that offset. A reader that needs all of them waits until the last stable
offset reaches the end that the log had when it asked.
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
    """Wait until every record written so far is decided; return the offset after them.

    Args:
        admin: reads the offsets.
        partitions: are waited for together.
        within_seconds: the longest wait for open transactions.

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
    """Wait like `decided_ends`, and fail if a transaction stays open.

    Raises:
        ClusterUnreachable: no broker answered, or a transaction stays open.
    """
    settled: dict[TopicPartition, int] = {}
    for partition, end in decided_ends(admin, partitions, within_seconds).items():
        if end is None:
            raise ClusterUnreachable(
                f"a transaction in {partition} was not decided within {within_seconds:g} s, so "
                f"what is committed there is not known; `eosframework txn hanging --topic "
                f"{partition.topic}` shows whose it is, and how to end it"
            )
        settled[partition] = end
    return settled
