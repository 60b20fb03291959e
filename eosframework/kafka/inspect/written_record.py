"""One record of a log and its transaction: producer, epoch and the marker that ended it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from eosframework.errors import ConfigurationError
from eosframework.kafka.inspect.coordinators import at, list_transactions
from eosframework.kafka.inspect.partition_log import LogBatch, read_log
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition

_PLACE = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+)\[(?P<partition>[0-9]{1,9})\]@(?P<offset>[0-9]{1,18})"
)


@dataclass(frozen=True, slots=True, order=True)
class RecordPlace:
    """The place of a record: `TOPIC[PARTITION]@OFFSET`."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of `str`.

        Raises:
            ConfigurationError: the text is no place of a record.
        """
        match = _PLACE.fullmatch(text.strip())
        if match is None:
            raise ConfigurationError(
                f"{text!r} is not the place of a record; expected TOPIC[PARTITION]@OFFSET, for "
                f"example flights.late[0]@611 (quote it: a shell reads brackets)"
            )
        return cls(TopicPartition(match["topic"], int(match["partition"])), int(match["offset"]))


@dataclass(frozen=True, slots=True)
class RecordTransaction:
    """The transaction that wrote a record.

    Args:
        transactional_id: None: no coordinator knows an id of this producer any more.
        marker_offset: offset of the commit marker in the record's partition.
        committed_at: time of that marker.
    """

    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    marker_offset: int
    committed_at: datetime


def transaction_of_record(wire: Wire, place: RecordPlace) -> RecordTransaction:
    """Return the committed transaction of a record.

    Raises:
        ConfigurationError: there is no record at this place, or no committed transaction wrote it.
    """
    batch = _batch_at(wire, place)
    marker = _marker_after(wire, place, batch)
    assert batch.producer_id is not None, "a transactional batch names its producer"
    found = list_transactions(wire, producer_ids=[batch.producer_id])
    return RecordTransaction(
        batch.producer_id,
        batch.producer_epoch,
        found[0].transactional_id if found else None,
        marker.first_offset,
        at(marker.time_ms),
    )


def _batch_at(wire: Wire, place: RecordPlace) -> LogBatch:
    """Return the batch of a record of a transaction."""
    partition, offset = place.partition, place.offset
    _require_inside(wire, place)
    batch = next(read_log(wire, partition, offset, offset + 1), None)
    if batch is not None and batch.marker() is not None and batch.first_offset <= offset:
        raise ConfigurationError(
            f"{place} is the marker of a transaction, and no record; the records of the "
            f"transaction have smaller offsets"
        )
    if batch is None or offset not in {record.offset for record in batch.records()}:
        raise ConfigurationError(
            f"{place} is not there any more: the topic is compacted, and a later record has the "
            f"same key. Name a record that a consumer still reads"
        )
    if not batch.is_transactional:
        raise ConfigurationError(
            f"{place} was written outside of any transaction, so no worker with "
            f"worker.guarantee=exactly_once wrote it; ask for an output of one"
        )
    return batch


def _require_inside(wire: Wire, place: RecordPlace) -> None:
    """Raise unless the log of the partition may contain the offset."""
    partition = place.partition
    known = wire.leaders([partition.topic])
    if not known:
        raise ConfigurationError(
            f"topic {partition.topic!r} does not exist on this cluster; correct the name, or "
            f"kafka.bootstrap_servers"
        )
    if partition not in known:
        raise ConfigurationError(
            f"topic {partition.topic!r} has no partition {partition.partition}; it has 0 to "
            f"{len(known) - 1}"
        )
    first, end = wire.first_offsets([partition])[partition], wire.high_watermarks([partition])
    if place.offset < first:
        raise ConfigurationError(
            f"{place} was removed by retention: the log of {partition} begins at offset {first}"
        )
    if place.offset >= end[partition]:
        raise ConfigurationError(
            f"{place} does not exist: the log of {partition} ends before offset {end[partition]}"
        )


def _marker_after(wire: Wire, place: RecordPlace, batch: LogBatch) -> LogBatch:
    """Return the commit marker of the batch's transaction."""
    partition = place.partition
    end = wire.high_watermarks([partition])[partition]
    for later in read_log(wire, partition, batch.next_offset, end):
        if later.producer_id != batch.producer_id or (marker := later.marker()) is None:
            continue
        if marker.committed:
            return later
        raise ConfigurationError(
            f"{place} was aborted (marker at offset {later.first_offset}): no reader with "
            f"read_committed sees it, and the records of its transaction were processed again"
        )
    raise ConfigurationError(
        f"the transaction of {place} is still open, so it has no effect yet; ask again once it has "
        f"ended, or see `eosframework txn hanging --topic {partition.topic}`"
    )
