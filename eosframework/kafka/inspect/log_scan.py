"""Markers and records of given transactions in a partition's log.

A marker names a producer and not a transaction, so markers are assigned to transactions by time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from eosframework.kafka.inspect.coordinators import at
from eosframework.kafka.inspect.formats import CONSUMER_OFFSETS, CommittedOffset, decode_offset
from eosframework.kafka.inspect.partition_log import LogBatch
from eosframework.records import TopicPartition

SKEW_MILLISECONDS = 5_000
"""The greatest expected difference between the clocks of two brokers."""


@dataclass(frozen=True, slots=True)
class DatedMarker:
    """A marker in a partition; times in ms since 1970."""

    producer_id: int | None
    time_ms: int
    committed: bool


@dataclass(frozen=True, slots=True)
class Span:
    """The time span of a transaction's markers; times in ms since 1970.

    Args:
        from_ms: the start of the transaction.
        decided_ms: the time of its decision; None: the record of that is gone, or there is none.
        complete_ms: the time when all markers were written; None: they may not be yet.
        committed: the decision; None: it is not decided, so it has no marker.
    """

    producer_id: int | None
    from_ms: int
    decided_ms: int | None
    complete_ms: int | None
    committed: bool | None

    def distance_ms(self, time_ms: int) -> int:
        """Return how far a time lies outside the span; 0: inside."""
        earliest = self.decided_ms if self.decided_ms is not None else self.from_ms
        after = time_ms - self.complete_ms if self.complete_ms is not None else 0
        return max(earliest - time_ms, after, 0)


@dataclass(frozen=True, slots=True)
class TracedMarker:
    """The control record that ended the transaction in one partition."""

    partition: TopicPartition
    offset: int
    time: datetime
    committed: bool
    coordinator_epoch: int | None


@dataclass(frozen=True, slots=True)
class Written:
    """Records that one transaction wrote into one partition, without markers."""

    partition: TopicPartition
    first_offset: int
    last_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class Found:
    """One transaction's marker, records and offsets in the log of one partition."""

    marker: TracedMarker | None
    written: Written | None
    offsets: tuple[CommittedOffset, ...]


class Collected:
    """Batches of some producers in one partition, split by their markers.

    Args:
        partition: of the log.
        is_whole: the traced transactions wrote nothing before the first batch.
    """

    def __init__(self, partition: TopicPartition, *, is_whole: bool) -> None:
        self._partition = partition
        self._is_whole = is_whole
        self._open: dict[int | None, list[LogBatch]] = {}
        self._divided: set[int | None] = set()
        self._ended: list[tuple[DatedMarker, TracedMarker, list[LogBatch] | None]] = []

    def take(self, batch: LogBatch) -> None:
        """Add a batch; batches come in the order of the log."""
        producer_id = batch.producer_id
        marker = batch.marker()
        if marker is None:
            self._open.setdefault(producer_id, []).append(batch)
            return
        traced = TracedMarker(
            partition=self._partition,
            offset=batch.first_offset,
            time=at(batch.time_ms),
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
        )
        dated = DatedMarker(producer_id, batch.time_ms, marker.committed)
        batches = self._open.pop(producer_id, [])
        # The transaction before the first marker may have begun before the searched range.
        known = self._is_whole or producer_id in self._divided
        self._divided.add(producer_id)
        self._ended.append((dated, traced, batches if known else None))

    def assign(self, spans: dict[int, Span]) -> dict[int, Found]:
        """Return the transaction of each marker, and of the batches before it."""
        chosen = match([dated for dated, _, _ in self._ended], spans, SKEW_MILLISECONDS)
        found = {
            index: self._found(traced, batches or [])
            for (_, traced, batches), index in zip(self._ended, chosen, strict=True)
            if index is not None
        }
        for index, span in spans.items():
            if span.committed is None and (batches := self._open.get(span.producer_id)):
                found[index] = self._found(None, batches)
        return found

    def _found(self, marker: TracedMarker | None, batches: list[LogBatch]) -> Found:
        if not batches:
            return Found(marker, None, ())
        if self._partition.topic == CONSUMER_OFFSETS:
            return Found(marker, None, _committed_offsets(batches))
        written = Written(
            partition=self._partition,
            first_offset=batches[0].first_offset,
            last_offset=batches[-1].next_offset - 1,
            records=sum(batch.record_count for batch in batches),
        )
        return Found(marker, written, ())


def _committed_offsets(batches: Iterable[LogBatch]) -> tuple[CommittedOffset, ...]:
    """Return the last position of each partition that these batches commit."""
    positions: dict[tuple[str, TopicPartition], CommittedOffset] = {}
    for batch in batches:
        for record in batch.records():
            if record.key is None or record.value is None:
                continue
            position = decode_offset(record.key, record.value)
            if position is not None:
                positions[position.group, position.partition] = position
    return tuple(positions.values())


def match(
    markers: Sequence[DatedMarker], spans: Mapping[int, Span], skew_ms: int
) -> list[int | None]:
    """Return for each marker the key of the transaction that it ended; None: of none of these.

    A coordinator decides, has the markers written and only then completes, so that a marker's time
    lies in its transaction's span. Markers outside all spans, because the clocks of brokers differ,
    are assigned afterwards to the nearest transaction without a marker.

    Args:
        markers: of one partition, in the order of its log.
        spans: of the transactions that involve the partition, in their order.
        skew_ms: how far outside a span a marker may lie.
    """
    chosen: list[int | None] = [None] * len(markers)
    free = {key: span for key, span in spans.items() if span.committed is not None}
    for allowed_ms in (0, skew_ms):
        for number, marker in enumerate(markers):
            if chosen[number] is not None:
                continue
            near = [
                (span.distance_ms(marker.time_ms), key)
                for key, span in free.items()
                if span.committed == marker.committed and span.producer_id == marker.producer_id
            ]
            if near and min(near)[0] <= allowed_ms:
                chosen[number] = min(near)[1]
                del free[min(near)[1]]
    return chosen
