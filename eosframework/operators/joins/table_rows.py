"""Rows of a table: kept as they change, and looked up by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eosframework.operators.entries import Entry
from eosframework.operators.store_transaction import StoreSession

Row = Callable[[bytes], Entry | None]
"""Takes an encoded key; returns the row with its timestamp in milliseconds, or None."""

Show = Callable[[Any], Any]
"""Takes what a row was made from, or None; returns the row as a view has it, or None."""

Change = Callable[[bytes, Any, int, int], tuple[bool, Any]]
"""Takes key, new row (None: deleted), its timestamp and the stream time; returns whether the
current row has changed, and what it was."""


def changing(session: StoreSession) -> Change:
    """Return what keeps the row that came last, whatever its timestamp (`KTableSource`)."""
    get, put, delete = session.get, session.put, session.delete

    def change(key: bytes, value: Any, timestamp: int, stream_time: int) -> tuple[bool, Any]:
        before = get(key)
        if value is not None:
            put(key, (value, timestamp))
        elif before is not None:
            delete(key)
        return value is not None or before is not None, before and before[0]

    return change


def keeping(session: StoreSession) -> Change:
    """Return what does the same where nobody asks what a row was."""
    put, delete = session.put, session.delete

    def change(key: bytes, value: Any, timestamp: int, stream_time: int) -> tuple[bool, Any]:
        if value is None:
            delete(key)
        else:
            put(key, (value, timestamp))
        return True, None

    return change


def viewed(row: Row, shows: list[Show]) -> Row:
    """Return what looks rows up through filters and maps; a row that one drops is absent."""
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
    """Return all of `shows`, one after the other."""

    def show(value: Any) -> Any:
        for function in shows:
            if value is None:
                return None
            value = function(value)
        return value

    return show


def filtered(predicate: Callable[[Any], Any]) -> Show:
    """Return what drops rows for which a predicate does not hold."""
    return lambda value: value if predicate(value) else None


def joined_rows(left: Row, right: Row, by: Callable[[Any, Any], Any], needs: Needs) -> Row:
    """Return what looks up the rows of two tables and joins them."""
    result = joining(by, needs)

    def look(key: bytes) -> Entry | None:
        one, other = left(key), right(key)
        value = result(one and one[0], other and other[0])
        return None if value is None else (value, latest(one, other))

    return look


Needs = tuple[bool, bool]
"""Whether a result needs a left row, and a right row."""


def joining(by: Callable[[Any, Any], Any], needs: Needs) -> Callable[[Any, Any], Any]:
    """Return what joins two rows, either of which may be absent; None: there is no result."""
    left_needed, right_needed = needs

    def join(left: Any, right: Any) -> Any:
        if left is None and (left_needed or right is None):
            return None
        if right is None and right_needed:
            return None
        return by(left, right)

    return join


def latest(one: Entry | None, other: Entry | None) -> int:
    """Return the later timestamp of two rows of which there is at least one."""
    times = [entry[1] for entry in (one, other) if entry is not None]
    return max(times)
