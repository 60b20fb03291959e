"""References of sliding windows, for late records that a window made from a closed one lacks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tests.comparison.arrivals import Arrival
from tests.comparison.flights import HOUR_MS

SIZE_MS, GRACE_MS = HOUR_MS, 2 * HOUR_MS


class Count(NamedTuple):
    """A window's number of records, and the greatest of their times."""

    records: int
    at: int


class Update(NamedTuple):
    """A window of a key, with its new count."""

    key: str
    start: int
    count: Count


def by_definition(flights: Iterable[Arrival]) -> list[Update]:
    """Count in each window all records within it that any window accepted."""
    times: dict[str, list[int]] = defaultdict(list)
    windows: dict[tuple[str, int], Count] = {}
    updates: list[Update] = []
    for flight in flights:
        if flight.at + 1 + SIZE_MS + GRACE_MS <= flight.stream_time:
            continue
        key, at, mine = flight.key, flight.at, times[flight.key]
        insort(mine, at)
        near = mine[bisect_left(mine, at - SIZE_MS - 1) : bisect_right(mine, at + SIZE_MS)]
        starts = {start for time in near for start in (time - SIZE_MS, time + 1)}
        for start in sorted(s for s in starts if s <= at <= s + SIZE_MS or s == at + 1):
            first, end = bisect_left(mine, start), bisect_right(mine, start + SIZE_MS)
            if first == end or _has_closed(start, flight.stream_time):
                continue
            count = Count(end - first, mine[end - 1])
            if windows.get((key, start)) != count:
                windows[key, start] = count
                updates.append(Update(key, start, count))
    return updates


def by_kafka_streams(flights: Iterable[Arrival]) -> list[Update]:
    """Count as `KStreamSlidingWindowAggregate.processReverse` does.

    It makes a record's windows from the counts of those before and around it (KIP-450). One that
    has closed was not updated by a late record, so what is made from it lacks that record.
    """
    stores: dict[str, _Store] = defaultdict(_Store)
    updates: list[Update] = []
    for flight in flights:
        if flight.at + 1 + SIZE_MS + GRACE_MS > flight.stream_time:
            made = stores[flight.key].add(flight.at, flight.stream_time)
            updates += [Update(flight.key, start, count) for start, count in made]
    return updates


class _Store:
    """The windows of a key by their starts."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._counts: dict[int, Count] = {}

    def add(self, at: int, stream_time: int) -> list[tuple[int, Count]]:
        """Take a record; return the windows that it changed or made."""
        made: list[tuple[int, Count]] = []

        def put(start: int, count: Count) -> None:
            if not _has_closed(start, stream_time):
                if start not in self._counts:
                    insort(self._starts, start)
                self._counts[start] = count
                made.append((start, count))

        def join(start: int, count: Count | None) -> None:
            put(start, Count(count.records + 1, max(at, count.at)) if count else Count(1, at))

        first = bisect_left(self._starts, max(0, at - 2 * SIZE_MS))
        near = self._starts[first : bisect_right(self._starts, at + 1)]
        before: Count | None = None
        around: Count | None = None
        previous: int | None = None
        for start in reversed(near):
            count, end = self._counts[start], start + SIZE_MS
            if end < at:
                before, previous = count, count.at
                break
            if start <= at:
                around = around or (count if end > at else None)
                previous = count.at if end == at > count.at else previous
                join(start, count)
        if previous is not None and previous + 1 + SIZE_MS >= at and previous + 1 not in near:
            join(previous + 1, None)
        if at - SIZE_MS not in near:
            is_empty = previous is None or previous < at - SIZE_MS
            join(at - SIZE_MS, None if is_empty else before)
        if at + 1 not in near and around is not None and around.at > at:
            put(at + 1, around)
        return made


def _has_closed(start: int, stream_time: int) -> bool:
    return start + SIZE_MS + GRACE_MS < stream_time
