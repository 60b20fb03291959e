"""Finds the record whose output the broker refuses, by replaying a transaction in halves.

A commit that fails because of its data does not say which record was at fault. So the same
input is replayed with half as many records to a transaction, and again, down to one record:
that one then goes the way of `on_error`. What is in order is committed on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eosframework.errors import DataRejected, RecordFailed, RunError
from eosframework.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Culprit:
    """The record whose output is refused."""

    partition: TopicPartition
    offset: int
    error: DataRejected


@dataclass(frozen=True, slots=True)
class Narrowing:
    """How small transactions have to be, and how far.

    Args:
        limit: records to a transaction, at most.
        until: positions behind which the limit is lifted.
        culprit_: the record, once it is known.
    """

    limit: int
    until: Mapping[TopicPartition, int]
    culprit_: Culprit | None = None

    @classmethod
    def after(
        cls,
        earlier: Narrowing | None,
        records: int,
        positions: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int],
        error: DataRejected,
    ) -> Narrowing:
        """Return the next narrower attempt after a transaction of `records` was refused.

        Raises:
            RecordFailed: the record was known already; its dead letter is refused as well.
            RunError: no record is at fault: results of windows that the clock closed are refused.
        """
        if not records:
            raise RunError(
                f"the results of windows that closed because nothing came (close_when_idle) are "
                f"refused by the broker ({error}); raise max.message.bytes of the topics they go "
                f"to, or let aggregates keep less"
            )
        until = earlier.until if earlier is not None else dict(positions)
        if records > 1:
            return cls(records // 2, until)
        partition = next(p for p, offset in positions.items() if offset != committed[p])
        offset = positions[partition] - 1
        known = None if earlier is None else earlier.culprit(partition)
        if known is not None and known.offset == offset:
            raise RecordFailed(
                f"record {partition}@{offset}: its dead letter was refused as well ({error}). "
                f"Raise max.message.bytes of the dead-letter topic above that of {partition.topic}",
                offset=offset,
            ) from error
        return cls(1, until, Culprit(partition, offset, error))

    def room(self, records: int) -> int:
        """Return how many more records the open transaction of `records` may take."""
        return max(1, self.limit - records)

    def is_full(self, records: int) -> bool:
        """Tell whether a transaction of `records` must be committed now."""
        return records >= self.limit

    def widened(self, positions: Mapping[TopicPartition, int]) -> Narrowing | None:
        """Return what holds after a commit: twice the room; None once all is committed."""
        return self.left(positions) and Narrowing(self.limit * 2, self.until)

    def left(self, positions: Mapping[TopicPartition, int]) -> Narrowing | None:
        """Return what holds at positions that were found to be committed; None: that was all."""
        if all(positions.get(p, 0) >= offset for p, offset in self.until.items()):
            return None
        return self

    def culprit(self, partition: TopicPartition) -> Culprit | None:
        """Return the known culprit if it is in `partition`."""
        if self.culprit_ is not None and self.culprit_.partition == partition:
            return self.culprit_
        return None
