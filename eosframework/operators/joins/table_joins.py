"""Table–table joins: a table whose rows follow the rows of two tables.

Its row for a key is what the function makes of both rows. A change of either side is a change of
the result when there was a result before, or is one now; so a row that ceases to be is deleted
downstream, and one that never was is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eosframework.operators.joins.table_rows import Needs, Row, Show, joining

Joined = tuple[Any, Any, int]
"""The new row, the row before, and the timestamp: the later one of both sides."""


class TableJoining:
    """Joins a change of one side with the current row of the other.

    Args:
        by: takes the left and the right row, one of them None where the kind allows it.
        needs: whether a result needs a left row, and a right row.
        shows: for each side, the row as the join sees it, out of what its origin has.
        rows: for each side, what looks the current row up.
    """

    def __init__(
        self,
        by: Callable[[Any, Any], Any],
        needs: Needs,
        shows: tuple[Show, Show],
        rows: tuple[Row, Row],
    ) -> None:
        self._result = joining(by, needs)
        self._shows = shows
        self._rows = rows

    def left(self, key: bytes, value: Any, before: Any, timestamp: int) -> Joined | None:
        """Take a change of the left side; return that of the result, or None."""
        show, result = self._shows[0], self._result
        new, old = show(value), show(before)
        if new is None and old is None:
            return None
        other = self._rows[1](key)
        # A function may change what it is given, so each call has a row of its own.
        joined_before = result(old, other and other[0])
        other = self._rows[1](key)
        joined = result(new, other and other[0])
        return _change(joined, joined_before, timestamp, other and other[1])

    def right(self, key: bytes, value: Any, before: Any, timestamp: int) -> Joined | None:
        """Take a change of the right side; return that of the result, or None."""
        show, result = self._shows[1], self._result
        new, old = show(value), show(before)
        if new is None and old is None:
            return None
        other = self._rows[0](key)
        joined_before = result(other and other[0], old)
        other = self._rows[0](key)
        joined = result(other and other[0], new)
        return _change(joined, joined_before, timestamp, other and other[1])


def _change(new: Any, old: Any, timestamp: int, other: int | None) -> Joined | None:
    if new is None and old is None:
        return None
    return new, old, timestamp if other is None or other < timestamp else other
