"""Reads what a broker has on disk: batches with their markers, and the offsets of a group.

The broker is done with a partition's records by then: nothing is appended any more, and every
replica is in sync.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kafka.record.memory_records import MemoryRecords

from tests.soak.history import Input, OffsetWritten, Outcome, Producer, Written

_OFFSETS_TOPIC = "__consumer_offsets"
_OFFSET_KEY_VERSIONS = (0, 1)


class _Decided(NamedTuple):
    """A batch and its outcome."""

    batch: Any
    outcome: Outcome


def outputs_in(data: Path, topic: str, side: str) -> list[Written]:
    """Return the batches of a topic, each with its outcome.

    Args:
        data: a broker's log directory.
        topic: every partition of it has a replica there.
        side: what the topic is called in the history.
    """
    return [
        Written(
            side,
            int(directory.name.rpartition("-")[2]),
            decided.batch.base_offset,
            decided.batch.last_offset,
            Producer(decided.batch.producer_id, decided.batch.producer_epoch),
            decided.outcome,
        )
        for directory in sorted(data.glob(f"{topic}-*"))
        for decided in _decided(_batches(directory))
    ]


def offsets_in(data: Path, group: str, topic: str) -> list[OffsetWritten]:
    """Return the offsets that a group committed in a topic, in the order they took effect."""
    found: list[OffsetWritten] = []
    for directory in sorted(data.glob(f"{_OFFSETS_TOPIC}-*")):
        for batch, outcome in _decided(_batches(directory)):
            producer = Producer(batch.producer_id, batch.producer_epoch)
            found += [
                OffsetWritten(place, producer, outcome) for place in _offsets(batch, group, topic)
            ]
    return found


def _batches(directory: Path) -> Iterator[Any]:
    for segment in sorted(directory.glob("*.log")):
        # A segment may be allocated ahead of what is written: a length of 0 ends it.
        content = segment.read_bytes()
        yield from MemoryRecords(content[: _written(content)])


def _written(content: bytes) -> int:
    end = 0
    while end + 12 <= len(content):
        (length,) = struct.unpack_from(">i", content, end + 8)
        if length == 0:
            break
        end += 12 + length
    return end


def _decided(batches: Iterable[Any]) -> list[_Decided]:
    """Return the batches of data in the order in which they were decided; open ones come last.

    A marker decides what its producer's id has written in the partition since the last one.
    """
    decided: list[_Decided] = []
    open_: dict[int, list[Any]] = defaultdict(list)
    for batch in batches:
        if batch.is_control_batch:
            if (outcome := _marker(batch)) is not None:
                ended = open_.pop(batch.producer_id, [])
                decided += [_Decided(data, outcome) for data in ended]
        elif batch.is_transactional:
            open_[batch.producer_id].append(batch)
        else:
            decided.append(_Decided(batch, Outcome.COMMITTED))
    return decided + [_Decided(data, Outcome.OPEN) for left in open_.values() for data in left]


def _marker(batch: Any) -> Outcome | None:
    """Return what a control batch decides; None if it is for the replicas only."""
    [record] = batch
    if record.abort:
        return Outcome.ABORTED
    return Outcome.COMMITTED if record.commit else None


def _offsets(batch: Any, group: str, topic: str) -> Iterator[Input]:
    for record in batch:
        key, value = record.key, record.value
        if value is None or struct.unpack_from(">h", key)[0] not in _OFFSET_KEY_VERSIONS:
            continue
        its_group, at = _text(key, 2)
        its_topic, at = _text(key, at)
        if (its_group, its_topic) == (group, topic):
            (partition,) = struct.unpack_from(">i", key, at)
            (offset,) = struct.unpack_from(">q", value, 2)
            yield Input(partition, offset)


def _text(content: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", content, at)
    end = at + 2 + length
    return bytes(content[at + 2 : end]).decode(), end
