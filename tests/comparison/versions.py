"""The documented differences of lookups in a table with history (KIP-889); see rules.py."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.comparison.arrivals import Arrival, arrivals
from tests.comparison.flights import HISTORY_MS
from tests.comparison.rules import Changed, Output, Sides, replaced


@dataclass(frozen=True)
class History:
    """The rules of a table with history.

    Args:
        keeps_old_rows: a row older than the history is added to it.
        is_counted_by_task: the history ends at the stream time of the task, not at the greatest
            time of the table's rows.
    """

    keeps_old_rows: bool = False
    is_counted_by_task: bool = False


STREAMS = History()
NO_ROW_DROPPED = replace(STREAMS, keeps_old_rows=True)
TASK_TIME = replace(NO_ROW_DROPPED, is_counted_by_task=True)


def rows_older_than_the_history(sides: Sides) -> Changed:
    """Add rows that are older than the history (`RocksDBVersionedStore.put` drops them)."""
    return _changed(sides, STREAMS, NO_ROW_DROPPED)


def history_by_the_time_of_rows(sides: Sides) -> Changed:
    """Count the history from the task's stream time, which records without a row move, too.

    `RocksDBVersionedStore.observedStreamTime` is the greatest time of a row.
    """
    return _changed(sides, NO_ROW_DROPPED, TASK_TIME)


class VersionsReference:
    """Rows of a table by their times, and lookups in them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._rows: dict[str, list[tuple[int, Any]]] = defaultdict(list)
        self._latest = -1
        """The greatest time of a row."""

    def outputs(self, given: Iterator[Arrival]) -> Iterator[tuple[Arrival, Any]]:
        """Yield each departure with the row that it finds."""
        for arrival in given:
            if arrival.topic == "rows":
                self._add(arrival)
            else:
                yield arrival, self._find(arrival)

    def _add(self, row: Arrival) -> None:
        oldest = self._oldest(row)
        if row.at < oldest and not self._history.keeps_old_rows:
            return
        self._latest = max(self._latest, row.at)
        versions = self._rows[row.key]
        versions[:] = [version for version in versions if version[0] != row.at]
        insort(versions, (row.at, row.value), key=_time_of)

    def _find(self, lookup: Arrival) -> Any:
        versions = self._rows[lookup.key]
        at = bisect_right(versions, lookup.at, key=_time_of)
        if at == 0:
            return None
        is_current = at == len(versions)
        if lookup.at < self._oldest(lookup) and not is_current:
            return None
        return versions[at - 1][1]

    def _oldest(self, arrival: Arrival) -> int:
        by_task = self._history.is_counted_by_task
        return (arrival.stream_time if by_task else self._latest) - HISTORY_MS


def _changed(sides: Sides, before: History, after: History) -> Changed:
    is_left = any(output.value["right"] is None for output in sides.ours)
    results = [
        _joined(sides, VersionsReference(history), is_left=is_left) for history in (before, after)
    ]
    return replaced(sides.theirs, *results)


def _joined(sides: Sides, reference: VersionsReference, *, is_left: bool) -> list[Output]:
    found = reference.outputs(arrivals(sides.inputs, "departures", "rows"))
    return [
        Output(arrival.key, {"left": arrival.value, "right": row}, arrival.at)
        for arrival, row in found
        if is_left or row is not None
    ]


def _time_of(version: Sequence[Any]) -> int:
    return version[0]
