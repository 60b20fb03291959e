"""Batches of a partition's log, including control records.

Consumers never see control records, so batches are fetched and parsed here.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from eosframework.errors import RunError
from eosframework.kafka.inspect.vendor import consumer_protocol, errors, records
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition

FETCH_BYTES = 1 << 20
WAIT_MILLISECONDS = 500
EMPTY_ANSWERS = 4
"""After this many in a row the rest of the range counts as compacted away."""

_COMMIT = 1
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""By their numbers in a batch's attributes."""


@dataclass(frozen=True, slots=True)
class Marker:
    """A control record that ends a producer's transaction in one partition.

    Args:
        coordinator_epoch: of the coordinator that had it written; None: an administrator did.
    """

    committed: bool
    coordinator_epoch: int | None


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record, decompressed."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


class LogBatch:
    """One batch of a log; its header is read at once, its records on demand.

    Args:
        batch: of kafka-python.
        stored: the bytes after the header, as they are stored.
    """

    def __init__(self, batch: Any, stored: memoryview) -> None:
        self._batch = batch
        self._stored = stored
        self.first_offset: int = batch.base_offset
        self.next_offset: int = batch.next_offset
        self.record_count: int = batch.records_count
        self.time_ms: int = batch.max_timestamp
        self.size_bytes: int = batch.size_in_bytes
        self.producer_id: int | None = batch.producer_id if batch.producer_id >= 0 else None
        self.producer_epoch: int = batch.producer_epoch
        self.is_transactional: bool = batch.is_transactional
        self.is_control: bool = batch.is_control_batch

    @property
    def codec(self) -> str:
        """The name of its codec, as in `compression.type`."""
        number: int = self._batch.compression_type
        return _CODECS[number] if number < len(_CODECS) else str(number)

    @property
    def stored(self) -> bytes:
        """The bytes after the header, as they are stored."""
        return bytes(self._stored)

    def marker(self) -> Marker | None:
        """Return this batch's marker; None: it is not a control batch."""
        if not (self.is_control and self.is_transactional and self.record_count):
            return None
        control = next(iter(self._batch))
        epoch = int.from_bytes(control.value[2:6], "big", signed=True)
        return Marker(control.type == _COMMIT, epoch if epoch >= 0 else None)

    def records(self) -> list[LogRecord]:
        """Return the records.

        Raises:
            RunError: it is compressed with a codec whose package is not installed.
        """
        try:
            return [
                LogRecord(record.offset, record.timestamp, record.key, record.value)
                for record in self._batch
            ]
        except (errors.UnsupportedCodecError, NotImplementedError, AssertionError) as error:
            raise RunError(
                f"the batch at offset {self.first_offset} is compressed with a codec that is not "
                f"installed here ({error}); install python-snappy, lz4 or zstandard"
            ) from error


def read_log(
    wire: Wire, partition: TopicPartition, start: int, end: int
) -> Generator[LogBatch, None, None]:
    """Yield the batches of a range, whether their transactions are decided or not.

    Args:
        wire: to the cluster.
        partition: of the log.
        start: the first offset; a batch that contains it is yielded whole.
        end: the offset to stop before, at most the high watermark.

    Raises:
        ConfigurationError: this principal may not read the topic.
        RunError: the start was removed from the log.
    """
    offset, empty = start, 0
    while offset < end and empty < EMPTY_ANSWERS:
        answer: Any = wire.call(
            f"reading {partition} at {offset}",
            f"Read on Topic {partition.topic}",
            lambda at=offset: _fetch(wire, partition, at),
        )
        before = offset
        data, at = memoryview(answer.records or b""), 0
        for batch in records.MemoryRecords(data):
            if batch.magic < 2:
                raise RunError(f"{partition} at {offset} is in a format older than transactions")
            begin, at = at, at + batch.size_in_bytes
            if batch.next_offset <= offset:
                continue
            if batch.base_offset >= end:
                return
            offset = batch.next_offset
            yield LogBatch(batch, data[begin + batch.HEADER_STRUCT.size : at])
        empty = empty + 1 if offset == before else 0


def _fetch(wire: Wire, partition: TopicPartition, offset: int) -> Any:
    """Return the leader's answer for one partition; raises kafka-python's errors."""
    leader = wire.leaders([partition.topic]).get(partition)
    if leader is None:
        raise errors.LeaderNotAvailableError(str(partition))
    topic = consumer_protocol.FetchRequest.FetchTopic
    request = consumer_protocol.FetchRequest(
        max_wait_ms=WAIT_MILLISECONDS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=int(consumer_protocol.IsolationLevel.READ_UNCOMMITTED),
        topics=[
            topic(
                topic=partition.topic,
                partitions=[
                    topic.FetchPartition(
                        partition=partition.partition,
                        fetch_offset=offset,
                        partition_max_bytes=FETCH_BYTES,
                    )
                ],
            )
        ],
        # Version 13 and later identify topics by their ids.
        max_version=12,
    )
    answer = wire.send(request, leader)
    if answer.error_code:
        raise errors.for_code(answer.error_code)(str(partition))
    ((found,),) = (entry.partitions for entry in answer.responses)
    if found.error_code:
        raise errors.for_code(found.error_code)(str(partition))
    return found
