"""Bisection of a transaction whose data the broker rejects.

A commit that is rejected for its data does not name the record. So the same input is replayed with
half as many records in a transaction, and again, down to one record. Valid records are committed on
the way. Late results may be emitted with the last record; a trial separates them from its own
outputs (see `late_results`). Then

    the record's own outputs    the record is not run; its source's `on_error` applies
    a result                    its node's `on_error` applies; the record is run
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eosframework.engine.task.late_results import LateResults, Trial
from eosframework.errors import DataRejected, RecordFailed, RunError
from eosframework.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Culprit:
    """The record whose output is rejected."""

    partition: TopicPartition
    offset: int
    error: DataRejected


@dataclass(frozen=True, slots=True)
class RejectedTransaction:
    """A transaction that the broker rejected.

    Args:
        records: the number of its records; 0: the clock closed windows.
        positions: the positions after it.
        committed: the positions before it.
        results: the late results in it.
        error: the reason.
        first: the record with which it began; None: it began without one.
    """

    records: int
    positions: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    results: LateResults
    error: DataRejected
    first: tuple[TopicPartition, int] | None = None

    @property
    def record(self) -> tuple[TopicPartition, int] | None:
        """The last record in it, or the one that it stopped in front of; None: there is none."""
        moved = (p for p, offset in self.positions.items() if offset != self.committed[p])
        partition = next(moved, None)
        return self.first if partition is None else (partition, self.positions[partition] - 1)


@dataclass(frozen=True, slots=True)
class Bisection:
    """The size limit of transactions, and the positions up to which it holds.

    Args:
        limit: the most records of a transaction.
        until: positions at which the limit ends.
        culprit_: the record, once it is known.
        trial: a trial of a transaction with one record, or none.
    """

    limit: int
    until: Mapping[TopicPartition, int]
    culprit_: Culprit | None = None
    trial: Trial | None = None

    @classmethod
    def after(cls, earlier: Bisection | None, refused: RejectedTransaction) -> Bisection:
        """Return the next smaller attempt after a transaction was rejected.

        Raises:
            RecordFailed: the record was already known; its dead letter is rejected as well.
            RunError: a result was already known, and its dead letter is rejected as well; or the
                broker rejects the changelog records of a transaction that the clock began.
        """
        until = earlier.until if earlier is not None else dict(refused.positions)
        if refused.records > 1:
            return cls(refused.records // 2, until)
        if (trial := _next_trial(refused)) is not None:
            return cls(1, until, trial=trial)
        if refused.record is None:
            raise RunError(
                f"the broker rejects the changelog records of a transaction that the clock began "
                f"(close_when_idle, every or timers of the wall clock): {refused.error}; raise "
                f"max.message.bytes of the changelog"
            )
        partition, offset = refused.record
        known = None if earlier is None else earlier.culprit(partition)
        if known is not None and known.offset == offset:
            if _may_be_smaller(known.error, refused.error):
                return cls(1, until, known)
            raise RecordFailed(
                f"record {partition}@{offset}: its dead letter was refused as well "
                f"({refused.error}). Raise max.message.bytes of the dead-letter topic; or, if the "
                f"broker refuses the timestamp, which is the record's own, raise "
                f"message.timestamp.before.max.ms and .after.max.ms there",
                offset=offset,
            ) from refused.error
        return cls(1, until, Culprit(partition, offset, refused.error))

    @classmethod
    def to(cls, records: int, positions: Mapping[TopicPartition, int]) -> Bisection:
        """Return a limit of so many records, but at least one, up to positions."""
        return cls(max(1, records), dict(positions))

    @property
    def is_of_clock(self) -> bool:
        """True if results of windows that the clock closed are tried."""
        return self.trial is not None and self.trial.record is None

    def room(self, records: int) -> int:
        """Return how many more records the open transaction of `records` may take."""
        return max(1, self.limit - records)

    def is_full(self, records: int) -> bool:
        """Return whether a transaction of `records` must be committed now."""
        return records >= self.limit

    def widened(self, positions: Mapping[TopicPartition, int]) -> Bisection | None:
        """Return the limit after a commit: twice as many records; None once all is committed."""
        return Bisection(self.limit * 2, self.until).left(positions)

    def left(self, positions: Mapping[TopicPartition, int]) -> Bisection | None:
        """Return the limit at committed positions; None: it has ended."""
        reached = all(positions.get(p, 0) >= offset for p, offset in self.until.items())
        return None if reached and not self.is_of_clock else self

    def culprit(self, partition: TopicPartition) -> Culprit | None:
        """Return the known culprit if it is in `partition`."""
        if self.culprit_ is not None and self.culprit_.partition == partition:
            return self.culprit_
        return None

    def trial_of(self, record: tuple[TopicPartition, int] | None) -> Trial | None:
        """Return the trial if it is of a transaction that begins with a record, or the clock."""
        return self.trial if self.trial is not None and self.trial.record == record else None


def _next_trial(refused: RejectedTransaction) -> Trial | None:
    """Return the next trial; None: no result is at fault.

    Raises:
        RunError: a result's dead letter is rejected.
    """
    trial, found = refused.results.trial, refused.results.found
    if trial is None:
        return Trial(refused.record) if refused.results.were_any else None
    if found is None or found == range(1):
        return None
    if len(found) > 1:
        return trial.among(found)
    if (known := trial.refused.get(found[0])) is not None:
        if _may_be_smaller(known, refused.error):
            return trial.without(found[0], known)
        raise RunError(
            f"a result of a window, timer or join was refused by the broker ({known}), and so was "
            f"its dead letter ({refused.error}); raise max.message.bytes of the dead-letter topic"
        )
    return trial.without(found[0], refused.error)


def _may_be_smaller(known: DataRejected, again: DataRejected) -> bool:
    """Return whether a rejected dead letter is written once more, in the smallest form.

    Args:
        known: the reason of the dead letter; its handler gets it again.
        again: the rejection of the dead letter.
    """
    if known.is_of_dead_letter or not again.is_too_large:
        return False
    known.is_of_dead_letter = True
    return True
