"""Table-table joins: a table whose rows follow the rows of two tables.

A result row is the value of the function for both rows. A change of either side changes the result
if a result existed before or exists now. So a row that no longer exists is deleted downstream, and
a row that never existed is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eosframework.operators.joins.table_rows import Needs, Row, Show, joining

Joined = tuple[Any, Any, int]
"""The new row, the row before, and the timestamp: the later one of both sides."""


class TableJoinOperator:
    """Joins a change of one side with the current row of the other.

    Args:
        by: takes the left and the right row, one of them None where the kind of join allows it.
        needs: whether a result needs a left row, and a right row.
        shows: for each side, the conversion from the stored row to the row that the join sees.
        rows: for each side, the lookup of the current row.
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
        """Take a change of the left side; return the change of the result, or None."""
        show, result = self._shows[0], self._result
        new, old = show(value), show(before)
        if new is None and old is None:
            return None
        other = self._rows[1](key)
        # The function may change its arguments, so each call gets a freshly decoded row.
        joined_before = result(old, other and other[0])
        other = self._rows[1](key)
        joined = result(new, other and other[0])
        return _change(joined, joined_before, timestamp, other and other[1])

    def right(self, key: bytes, value: Any, before: Any, timestamp: int) -> Joined | None:
        """Take a change of the right side; return the change of the result, or None."""
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
