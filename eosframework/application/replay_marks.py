"""Marks of replayed dead letters, in the application's control topic.

There is an entry for each stretch of a partition of a dead-letter topic:

    replayed/TOPIC/PARTITION/STRETCH    {"topic_id": …, "ranges": [[0, 17], [20, 21]]}

The ranges include offsets without a dead letter between replayed ones, for example transaction
markers, so dead letters that were replayed in sequence form one range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eosframework.records import TopicPartition

PREFIX = "replayed/"

STRETCH = 10_000
"""Offsets per entry, so that it stays far below the largest message."""

Range = tuple[int, int]
"""First offset, and the next offset after the last."""


@dataclass(slots=True)
class Marks:
    """Replayed dead letters of one partition of a dead-letter topic.

    Args:
        topic_id: of the topic that was read.
        stretches: by number, sorted ranges that do not touch each other.
    """

    partition: TopicPartition
    topic_id: str
    stretches: dict[int, list[Range]] = field(default_factory=dict[int, list[Range]])

    def __contains__(self, offset: int) -> bool:
        ranges = self.stretches.get(offset // STRETCH, [])
        at = bisect_right(ranges, offset, key=lambda known: known[0]) - 1
        return at >= 0 and offset < ranges[at][1]

    def with_(self, stretch: int, ranges: Iterable[Range]) -> Marks:
        """Return marks with further ranges, as far as they lie in a stretch."""
        begin, end = stretch * STRETCH, (stretch + 1) * STRETCH
        cut = [(max(first, begin), min(last, end)) for first, last in ranges]
        cut = [(first, last) for first, last in cut if first < last]
        known = self.stretches.get(stretch, [])
        stretches = {**self.stretches, stretch: _joined([*known, *cut])}
        return Marks(self.partition, self.topic_id, stretches)

    def entry(self, stretch: int) -> Any:
        """Return the entry of a stretch, as JSON data."""
        ranges = [list(found) for found in self.stretches[stretch]]
        return {"topic_id": self.topic_id, "ranges": ranges}


def mark_key(partition: TopicPartition, stretch: int) -> str:
    """Return the key of the marks of a stretch."""
    return f"{PREFIX}{partition.topic}/{partition.partition}/{stretch}"


def marks_in(
    entries: Mapping[str, Any], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, Marks]:
    """Return the marks in entries of the control topic, by partition.

    Args:
        entries: those under `PREFIX`.
        topic_ids: of the dead-letter topics; marks of a former topic with that name are void.
    """
    found: dict[TopicPartition, Marks] = {}
    for key, entry in entries.items():
        topic, number, stretch = key.removeprefix(PREFIX).split("/")
        if topic_ids.get(topic) != entry["topic_id"]:
            continue
        partition = TopicPartition(topic, int(number))
        marks = found.setdefault(partition, Marks(partition, entry["topic_id"]))
        marks.stretches[int(stretch)] = [(first, end) for first, end in entry["ranges"]]
    return found


def _joined(ranges: list[Range]) -> list[Range]:
    """Return the sorted ranges, with touching ones merged."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return joined
