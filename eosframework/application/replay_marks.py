"""Marks of replayed dead letters, in the application's control topic.

There is an entry for each stretch of a partition of a dead-letter topic:

    replayed/TOPIC/PARTITION/STRETCH    {"topic_id": …, "ranges": [[0, 17], [20, 21]]}

The ranges include offsets without a dead letter between replayed ones, for example transaction
markers, so dead letters that were replayed in sequence form one range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eosframework.application.control_log import ControlLog
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Output

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

    def with_(self, ranges: Iterable[Range]) -> Marks:
        """Return marks with further ranges."""
        stretches = dict(self.stretches)
        for number, added in _cut(ranges):
            stretches[number] = _joined([*stretches.get(number, []), added])
        return Marks(self.partition, self.topic_id, stretches)

    def entries(self, since: Marks) -> Iterator[tuple[str, Any]]:
        """Yield the entries that differ from those of earlier marks."""
        for number, ranges in self.stretches.items():
            if ranges != since.stretches.get(number):
                key = f"{PREFIX}{self.partition.topic}/{self.partition.partition}/{number}"
                yield key, {"topic_id": self.topic_id, "ranges": ranges}


class ReplayMarks:
    """Reads and writes marks in an application's control topic."""

    def __init__(self, log: ControlLog) -> None:
        self._log = log

    def settled(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, Marks]:
        """Return committed marks, once all records written before this call are decided.

        Args:
            topic_ids: of the dead-letter topics; marks of a former topic with that name are void.

        Raises:
            ClusterUnreachable: no broker answered, or a transaction stays undecided.
        """
        return _marks(self._log.settled(PREFIX), topic_ids)

    def decided(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, Marks]:
        """Return committed marks before the first undecided transaction; never waits.

        Raises:
            ClusterUnreachable: no broker answered.
        """
        return _marks(self._log.decided(PREFIX), topic_ids) if self._log.exists() else {}

    def outputs(self, marks: Marks, since: Marks) -> list[Output]:
        """Return the records that replace earlier marks."""
        return [self._log.output(key, entry) for key, entry in marks.entries(since)]


def _marks(entries: Mapping[str, Any], topic_ids: Mapping[str, str]) -> dict[TopicPartition, Marks]:
    found: dict[TopicPartition, Marks] = {}
    for key, entry in entries.items():
        topic, number, stretch = key.removeprefix(PREFIX).split("/")
        if topic_ids.get(topic) != entry["topic_id"]:
            continue
        partition = TopicPartition(topic, int(number))
        marks = found.setdefault(partition, Marks(partition, entry["topic_id"]))
        marks.stretches[int(stretch)] = [(first, end) for first, end in entry["ranges"]]
    return found


def _cut(ranges: Iterable[Range]) -> Iterator[tuple[int, Range]]:
    """Split ranges at the ends of stretches."""
    for first, end in ranges:
        while first < end:
            number = first // STRETCH
            stop = min(end, (number + 1) * STRETCH)
            yield number, (first, stop)
            first = stop


def _joined(ranges: list[Range]) -> list[Range]:
    """Return the sorted ranges, with touching ones merged."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return joined
