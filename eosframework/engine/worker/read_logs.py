"""Comparison of positions with the ends of logs: the end is the high watermark.

The last stable offset says nothing about records that wait: those of an open transaction follow it
in the log. An offset that is committed to the group up to the high watermark shows that nothing
waits, in whichever process the partition is read, and whether that process runs or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from eosframework.records import TopicPartition
from eosframework.transactions.ports import InputLog


def unread(log: InputLog, partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
    """Return the partitions with records, or markers, that the group has not committed.

    Positions are read before ends. In the other order a chain would look read too early:

        1. the ends of topics A and B are read  2. the reader of A writes its results to B and
        commits  3. the committed positions equal both ends, and the results wait in B

    Args:
        log: of a member of the group.
        partitions: the partitions, of any member.

    Raises:
        EosError: the brokers did not answer.
    """
    if not partitions:
        return set()
    committed = {p.topic_partition: p.offset for p in log.decided(partitions)}
    new = [partition for partition, offset in committed.items() if offset is None]
    # A partition that was never committed may have a log that retention has emptied.
    read_to = committed | (log.beginning_offsets(new) if new else {})
    ends = log.high_watermarks(partitions)
    return {p for p in partitions if (read_to[p] or 0) < ends[p]}


def holds_nothing(log: InputLog, read_to: dict[TopicPartition, int]) -> bool:
    """Return whether the logs of some partitions end at the offsets up to which they were read.

    Raises:
        EosError: the brokers did not answer.
    """
    ends = log.high_watermarks(list(read_to))
    return all(ends[partition] <= offset for partition, offset in read_to.items())
