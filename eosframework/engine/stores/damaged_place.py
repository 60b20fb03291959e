"""The place of an entry that cannot be decoded: the search for it in its topic.

Stores keep no offsets, so the topic is read once, after the worker has failed: the last record
whose value or key is the damaged bytes, or contains them, is the entry.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from eosframework.engine.stores.state_ports import Bounds, ChangelogReading, Changelogs
from eosframework.errors import ClusterUnreachable, EntryDamaged, PositionLost
from eosframework.records import TopicPartition

SEARCH_SECONDS = 15.0
"""The longest search; the topic may be large, and the worker waits to end."""

READ_SECONDS = 0.2


def located(
    error: EntryDamaged,
    topics: Changelogs,
    partitions: int,
    clock: Callable[[], float] = time.monotonic,
) -> EntryDamaged:
    """Return the error with the place of the entry, or as it is if the entry is not found.

    Args:
        error: names the topic, and the damaged bytes.
        topics: reads the topic.
        partitions: the number of partitions of the topic.
        clock: seconds, monotonic.
    """
    if error.topic is None:
        return error
    numbers = range(partitions) if error.partition is None else [error.partition]
    deadline = clock() + SEARCH_SECONDS
    try:
        bounds = topics.bounds([TopicPartition(error.topic, number) for number in numbers])
        ranges = {p: bound for p, bound in bounds.items() if bound[0] < bound[1]}
        reading = topics.open(ranges)
    except ClusterUnreachable:
        return error
    try:
        place = _search(reading, ranges, error.part, lambda: clock() < deadline)
    except (ClusterUnreachable, PositionLost):
        place = None
    finally:
        reading.close()
    return error if place is None else EntryDamaged(f"{error}. The entry is {place}")


def _search(
    reading: ChangelogReading,
    ranges: Bounds,
    part: bytes,
    may_read: Callable[[], bool],
) -> str | None:
    """Return the last record that is made of the bytes, or else the last that contains them."""
    found: tuple[bool, str] | None = None
    left = {partition: end for partition, (_, end) in ranges.items()}
    while left and may_read():
        for partition, messages in reading.read(READ_SECONDS).items():
            for message in messages:
                key, value = message.key() or b"", message.value() or b""
                is_whole = part in (key, value)
                if not is_whole and part not in value and part not in key:
                    continue
                if found is None or is_whole >= found[0]:
                    found = is_whole, f"{partition}@{message.offset()} (key {key[:200]!r})"
        left = {p: end for p, end in left.items() if reading.read_to(p) < end}
    return None if found is None else found[1]
