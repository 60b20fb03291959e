"""Waiting until what is written in a partition is decided: committed, aborted or alone.

A `read_committed` reader gets to the last stable offset, and what was committed may lie behind
that, where a transaction is still open. So who must see all that was committed waits until the last
stable offset is where the log ended when it was asked.
"""

from __future__ import annotations

import time

from eosframework.errors import ClusterUnreachable
from eosframework.kafka.admin import ClusterAdmin
from eosframework.records import TopicPartition

LOOK_SECONDS = 0.01


def decided_end(
    admin: ClusterAdmin, partition: TopicPartition, within_seconds: float
) -> int | None:
    """Return an offset before which all is decided that is written now; None: it is not yet.

    Raises:
        ClusterUnreachable: nobody answered.
    """
    written = admin.high_watermarks([partition])[partition]
    deadline = time.monotonic() + within_seconds
    while True:
        end = admin.log_bounds([partition])[partition][1]
        if end >= written:
            return end
        if time.monotonic() > deadline:
            return None
        time.sleep(LOOK_SECONDS)


def settled_end(admin: ClusterAdmin, partition: TopicPartition, within_seconds: float) -> int:
    """Return an offset before which all is decided that is written now.

    Raises:
        ClusterUnreachable: nobody answered, or a transaction stays open.
    """
    end = decided_end(admin, partition, within_seconds)
    if end is None:
        raise ClusterUnreachable(
            f"a transaction in {partition} was not decided within {within_seconds:g} s, so what "
            f"is committed there is not known; `eosframework txn hanging --topic "
            f"{partition.topic}` shows whose it is, and how to abort it"
        )
    return end
