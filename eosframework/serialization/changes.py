"""Changes of a table, on their way to the tasks of the groups that their rows belong to.

The value of a record in the repartition topic of a grouped table:

    1 byte   1: there is a row to add; 2: a row to take back; 4: that row has a group of its own
    4 bytes  only with 4: the length of the key of its group, then the key
    4 bytes  only with both rows: the length of the row to take back
    the row to take back, then the row to add

A row that stays in its group is one record with both rows, so no result lacks it in between. So is
a row that moves to a group of the same task. Otherwise there are two records.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from eosframework.serialization.serdes import CHECKED_BYTES, Serde

_NEW, _OLD, _MOVED = 1, 2, 4
_KINDS = [bytes([kind]) for kind in range(2 * _MOVED)]
_LENGTH = struct.Struct(">I")
_CHANGE_OF = re.compile(r"change\((.+)\)")


class Change(NamedTuple):
    """A change of a row of a table, by group.

    Args:
        new: the row to add to the group of the record's key; None: there is none.
        old: the row to take back; None: there is none.
        old_key: the encoded key of its group; None: it is the record's own.
    """

    new: Any
    old: Any
    old_key: bytes | None = None


SameTask = Callable[[bytes, bytes], bool]
"""Returns whether the records of two encoded keys reach the same task."""


def halves(
    key: bytes | None, new: Any, old_key: bytes | None, old: Any, same_task: SameTask
) -> list[tuple[bytes, Change]]:
    """Return the records of a change with their keys: the row to take back comes first.

    Args:
        key: of the group of the new row; None: there is no such row, or it has no group.
        new: the new row.
        old_key: as `key`, of the old row.
        old: the old row.
        same_task: of the repartition topic.
    """
    if key is None:
        return [] if old_key is None else [(old_key, Change(None, old))]
    if old_key is None:
        return [(key, Change(new, None))]
    if key == old_key:
        return [(key, Change(new, old))]
    if same_task(key, old_key):
        return [(key, Change(new, old, old_key))]
    return [(old_key, Change(None, old)), (key, Change(new, None))]


def by_group(key: bytes, change: Change | None) -> tuple[tuple[bytes, Any, Any], ...]:
    """Return each group of a record with the row to add and the row to take back."""
    if change is None:
        return ()
    new, old, old_key = change
    if old_key is None:
        return ((key, new, old),)
    return (old_key, None, old), (key, new, None)


def change_name(value: str) -> str:
    """Return the name of the serde of a table's changes.

    Args:
        value: name of the serde of its rows.
    """
    return f"change({value})"


def changed_name(name: str) -> str | None:
    """Return the rows' serde in the name of a change's; None: it is another name."""
    found = _CHANGE_OF.fullmatch(name)
    return None if found is None else found[1]


@functools.cache
def change_serde(of: Serde) -> Serde:
    """Return the serde of the changes of rows that have a serde."""
    write = of.encode or CHECKED_BYTES.encode or bytes
    read = of.decode or bytes

    # Partial functions of the module: a nested one would be sent to Spark's executors by value.
    return Serde(
        change_name(of.name), functools.partial(_encode, write), functools.partial(_decode, read)
    )


def _encode(write: Callable[[Any], bytes], change: Change) -> bytes:
    new, old, old_key = change
    if old is None:
        kind, rows = _NEW, write(new)
    elif new is None:
        kind, rows = _OLD, write(old)
    else:
        taken = write(old)
        kind, rows = _NEW | _OLD, _LENGTH.pack(len(taken)) + taken + write(new)
    if old_key is None:
        return _KINDS[kind] + rows
    return _KINDS[kind | _MOVED] + _LENGTH.pack(len(old_key)) + old_key + rows


def _decode(read: Callable[[bytes], Any], data: bytes) -> Change:
    kind, at = data[0], 1
    old_key = None
    if kind & _MOVED:
        old_key, at = _part(data, at)
    if kind & (_NEW | _OLD) == _NEW | _OLD:
        old, at = _part(data, at)
        return Change(read(data[at:]), read(old), old_key)
    row = read(data[at:])
    return Change(row, None, old_key) if kind & _NEW else Change(None, row, old_key)


def _part(data: bytes, at: int) -> tuple[bytes, int]:
    """Return a part that follows its length, and the position after it."""
    begin = at + _LENGTH.size
    end = begin + _LENGTH.unpack_from(data, at)[0]
    if end > len(data):
        raise ValueError(f"a change of {len(data)} bytes ends before its part of {end - begin}")
    return data[begin:end], end
