"""A reference of lookups in a table with history, for rows that arrive when they are too old."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.comparison.arrivals import Arrival, arrivals
from tests.comparison.flights import HOUR_MS, Fed

HISTORY_MS = 8 * HOUR_MS


class VersionedRows:
    """The versions of the rows of each key.

    Args:
        drops_old_rows: a row that is older than the history when it arrives is dropped. False: it
            is the current row if nothing is known that is newer.
        uses_table_time: the history is counted from the greatest time of a row. False: from the
            stream time of the task.
    """

    def __init__(self, *, drops_old_rows: bool, uses_table_time: bool) -> None:
        self._drops_old_rows = drops_old_rows
        self._uses_table_time = uses_table_time
        self._versions: dict[str, dict[int, Any]] = defaultdict(dict)
        self._newest = -1

    def change(self, row: Arrival) -> None:
        """Take a row."""
        oldest, versions = self._oldest(row), self._versions[row.key]
        if row.at < oldest:
            if self._drops_old_rows:
                return
            past = sorted(at for at in versions if at < oldest)
            for at in past[:-1] if past and versions[past[-1]] is not None else past:
                del versions[at]
            if row.value is None:
                return
        versions[row.at] = row.value
        self._newest = max(self._newest, row.at)

    def current(self, record: Arrival) -> Any:
        """Return the row that was current at a record's time."""
        versions = self._versions[record.key]
        if record.at < self._oldest(record) and (
            not self._uses_table_time or any(at > record.at for at in versions)
        ):
            return None
        return versions.get(max((at for at in versions if at <= record.at), default=-1))

    def _oldest(self, arrival: Arrival) -> int:
        now = self._newest if self._uses_table_time else arrival.stream_time
        return now - HISTORY_MS


def looked_up(
    inputs: Mapping[str, Sequence[Fed]], rows: VersionedRows
) -> Iterator[tuple[Arrival, Any]]:
    """Yield each departure with the row that it finds."""
    for arrival in arrivals(inputs, "departures", "rows", "versions"):
        if arrival.topic == "versions":
            rows.change(arrival)
        elif arrival.topic == "departures":
            yield arrival, rows.current(arrival)
