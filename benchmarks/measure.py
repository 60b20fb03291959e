"""Committed input over time, measured from outside and in the same way for all contestants.

Every contestant commits the positions of its consumer group within its transactions, so the
group's committed offsets say which input records have taken effect, to the record. A separate
client asks the broker for them. Nothing that a contestant says of itself is used, and its
start-up does not count: the clock runs between two of these looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from benchmarks.inputs import PARTITIONS
from benchmarks.processes import Child, ProcessFailed

LOOK_SECONDS = 0.015
STALLED_SECONDS = 180.0
ANSWER_SECONDS = 30.0

_NOT_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
)

Answer = TypeVar("Answer")


class TooFewRecords(ProcessFailed):
    """The input was over before its speed could be measured."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: how many input records are committed, and the processor time used so far."""

    at: float
    records: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Speed:
    """The work of a run between two samples."""

    records: int
    seconds: float
    cpu_seconds: float

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_microseconds_per_record(self) -> float:
        return self.cpu_seconds / self.records * 1e6


class Progress(Protocol):
    """Something outside a contestant that shows how far it is."""

    def total(self) -> int:
        """Number of records."""
        ...


class CommittedOffsets:
    """Looks at the committed offsets of one group on one topic."""

    def __init__(
        self, bootstrap_servers: str, group: str, topic: str, partitions: int = PARTITIONS
    ) -> None:
        # read_uncommitted only means that the broker answers at once while a transaction is
        # open: offsets of open transactions are never part of the answer.
        self._client = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "isolation.level": "read_uncommitted",
            }
        )
        self._partitions = [TopicPartition(topic, partition) for partition in range(partitions)]

    def by_partition(self) -> list[int]:
        """The committed offset of each partition; 0 where there is none."""
        found = _answer(lambda: self._client.committed(self._partitions, timeout=ANSWER_SECONDS))
        return [max(0, partition.offset) for partition in found]

    def total(self) -> int:
        """Number of committed input records (the input has no gaps)."""
        return sum(self.by_partition())

    def close(self) -> None:
        self._client.close()


class WrittenRecords:
    """Looks at how many records a topic has that was empty."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._client = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "watcher"})
        self._partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]

    def total(self) -> int:
        """Number of records."""
        return sum(self._end(partition) for partition in self._partitions)

    def close(self) -> None:
        self._client.close()

    def _end(self, partition: TopicPartition) -> int:
        ask = partial(self._client.get_watermark_offsets, partition, timeout=ANSWER_SECONDS)
        return _answer(ask)[1]


def _answer(ask: Callable[[], Answer]) -> Answer:
    """Ask until a new broker has made its internal topics, and knows where a new topic is."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)


def speed_of_input(progress: Progress, child: Child, records: int) -> Speed:
    """Measure from the first look at a tenth of `records` or more to the first at all of them.

    Raises:
        ProcessFailed: the child ended or stands still.
        TooFewRecords: both are the same look.
    """
    first: Sample | None = None
    for sample in _samples(progress, child):
        if first is None and sample.records >= records // 10:
            first = sample
        if sample.records >= records:
            if first is None or first is sample:
                raise TooFewRecords(f"{records} records are over within one look: --records")
            return _between(first, sample)
    raise AssertionError("the samples do not end")


def speed_over_time(
    progress: Progress,
    child: Child,
    records: int,
    *,
    warm_up_seconds: float,
    seconds: float,
) -> Speed:
    """Measure for `seconds`, from the first commit after `warm_up_seconds` of commits.

    Args:
        records: in the input.

    Raises:
        TooFewRecords: the input was read to its end before that.
    """
    started: float | None = None
    first: Sample | None = None
    for sample in _samples(progress, child):
        if started is None:
            started = sample.at
        elif first is None and sample.at >= started + warm_up_seconds:
            first = sample
        elif first is not None and sample.at >= first.at + seconds:
            return _between(first, sample)
        if sample.records >= records:
            raise TooFewRecords(
                f"all {records} records were committed after {sample.at - started:.1f} s; a run of "
                f"{warm_up_seconds + seconds:g} s needs more of them: --records"
            )
    raise AssertionError("the samples do not end")


def speed_over_rounds(
    progress: Progress, child: Child, records: int, *, rounds: int, apart_seconds: float
) -> Speed:
    """Measure between two rounds of commits that are far apart, each when all of it shows.

    Args:
        records: in the input.
        rounds: how many rounds lie between them.
        apart_seconds: a pause that there is between rounds and not within one.

    Raises:
        ProcessFailed: no more was committed.
        TooFewRecords: the input was read to its end before that.
    """
    ends: list[Sample] = []
    last = next(_samples(progress, child))
    while len(ends) <= rounds:
        found, now = progress.total(), time.monotonic()
        if found != last.records:
            last = Sample(now, found, child.cpu_seconds())
        elif now > last.at + apart_seconds and (not ends or ends[-1] is not last):
            ends.append(last)
        told = f"{found} of {records} records were committed in {len(ends)} rounds"
        if found >= records:
            raise TooFewRecords(f"{told}; {rounds + 1} rounds were wanted: --records")
        if now > last.at + STALLED_SECONDS:
            raise ProcessFailed(f"{told}, and no more for {now - last.at:.0f} s")
        child.require_running()
        time.sleep(LOOK_SECONDS)
    return _between(ends[0], ends[-1])


def _samples(progress: Progress, child: Child) -> Iterator[Sample]:
    """Give a sample for each change of what is committed.

    Raises:
        ProcessFailed: the child ended, or committed nothing for `STALLED_SECONDS`.
    """
    records, changed_at = 0, time.monotonic()
    while True:
        found = progress.total()
        now = time.monotonic()
        if found != records:
            records, changed_at = found, now
            yield Sample(now, found, child.cpu_seconds())
        elif now > changed_at + STALLED_SECONDS:
            raise ProcessFailed(
                f"{child.process.args!r} committed nothing for {STALLED_SECONDS:g} s after "
                f"{records} records; its last lines:\n{child.log_tail()}"
            )
        child.require_running()
        time.sleep(LOOK_SECONDS)


def _between(first: Sample, last: Sample) -> Speed:
    return Speed(
        last.records - first.records,
        last.at - first.at,
        last.cpu_seconds - first.cpu_seconds,
    )
