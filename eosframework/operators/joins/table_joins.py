"""Rows of tables, and table-table joins: tables whose rows follow the rows of two tables.

The result row of a join is the value of the function for both rows. A change of either side changes
the result if a result existed before or exists now. So a row that no longer exists is deleted
downstream, and a row that never existed is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eosframework.operators.entries import Entry
from eosframework.operators.store_transaction import StoreTransaction

Row = Callable[[bytes], Entry | None]
"""Takes an encoded key; returns the row with its timestamp in milliseconds, or None."""

Show = Callable[[Any], Any]
"""Takes a stored row or None; returns the row of a view, or None."""

Change = Callable[[bytes, Any, int, int], tuple[bool, Any]]
"""Takes key, new row (None: deleted), its timestamp and the stream time; returns whether the
current row changed, and its previous value."""


def changing(store: StoreTransaction) -> Change:
    """Return a function that keeps the last row, whatever its timestamp (`KTableSource`)."""
    get, put, delete = store.get, store.put, store.delete

    def change(key: bytes, value: Any, timestamp: int, stream_time: int) -> tuple[bool, Any]:
        before = get(key)
        if value is not None:
            put(key, (value, timestamp))
        elif before is not None:
            delete(key)
        return value is not None or before is not None, before and before[0]

    return change


def keeping(store: StoreTransaction) -> Change:
    """Return the same function for tables whose previous rows are never read."""
    put, delete = store.put, store.delete

    def change(key: bytes, value: Any, timestamp: int, stream_time: int) -> tuple[bool, Any]:
        if value is None:
            delete(key)
        else:
            put(key, (value, timestamp))
        return True, None

    return change


def viewed(row: Row, shows: list[Show]) -> Row:
    """Return a row lookup through filters and maps; a row that a filter drops is absent."""
    if not shows:
        return row
    show = showing(shows)

    def look(key: bytes) -> Entry | None:
        entry = row(key)
        if entry is None:
            return None
        value = show(entry[0])
        return None if value is None else (value, entry[1])

    return look


def showing(shows: list[Show]) -> Show:
    """Return the composition of `shows`."""

    def show(value: Any) -> Any:
        for function in shows:
            if value is None:
                return None
            value = function(value)
        return value

    return show


def filtered(predicate: Callable[[Any], Any]) -> Show:
    """Return a function that drops rows for which a predicate is false."""
    return lambda value: value if predicate(value) else None


def joined_rows(left: Row, right: Row, by: Callable[[Any, Any], Any], needs: Needs) -> Row:
    """Return a lookup that joins the rows of two tables."""
    result = joining(by, needs)

    def look(key: bytes) -> Entry | None:
        one, other = left(key), right(key)
        value = result(one and one[0], other and other[0])
        return None if value is None else (value, latest(one, other))

    return look


Needs = tuple[bool, bool]
"""A pair of flags: a result needs a left row; a result needs a right row."""


def joining(by: Callable[[Any, Any], Any], needs: Needs) -> Callable[[Any, Any], Any]:
    """Return a function that joins two rows, either of which may be None; None: no result."""
    left_needed, right_needed = needs

    def join(left: Any, right: Any) -> Any:
        if left is None and (left_needed or right is None):
            return None
        if right is None and right_needed:
            return None
        return by(left, right)

    return join


def latest(one: Entry | None, other: Entry | None) -> int:
    """Return the later timestamp of two rows, at least one of which exists."""
    times = [entry[1] for entry in (one, other) if entry is not None]
    return max(times)


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
