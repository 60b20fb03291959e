"""The rows of a join of two tables by a foreign key (FK4 to FK6 of `foreign_keys`)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eosframework.engine.operators.entries import Entry
from eosframework.engine.operators.foreign_keys import BEGINS, ENDED, FOUND, HAS_KEY, HEAD, IS_ROW
from eosframework.engine.operators.store_transaction import StoreTransaction
from eosframework.serialization.serdes import Serde

Change = tuple[Any, Any, int]
"""The new row of the join, the one before, and the event time."""

_Pair = tuple[bytes, bytes | None, int]
"""The encoded left and right row of a result, and its event time."""

_STATE = struct.Struct(">BQQiqqqIII")
_LEFT, _KEY, _RIGHT, _OLD, _OLD_RIGHT = 1, 2, 4, 8, 16
"""Flags of a state: what is not None."""


@dataclass(slots=True)
class RowState:
    """The rows of one key.

    Attributes:
        version: of the last left row.
        answered: version of the last answer; 0: there was none.
        opened: the subscriptions that have begun, less those that have ended.
        left: the left row; None: there is none.
        has_key: its foreign key is not null.
        right: the right row of the last answer; None: there is none.
        left_ms: event time of the left row, or of its deletion.
        right_ms: event time of the last answer.
        old: while the answer has not come, the result that stays.
    """

    version: int = 0
    answered: int = 0
    opened: int = 0
    left_ms: int = 0
    right_ms: int = 0
    has_key: bool = False
    left: bytes | None = None
    right: bytes | None = None
    old: _Pair | None = None

    @property
    def is_waiting(self) -> bool:
        """True if the answer to the left row has not come yet (FK5)."""
        return self.left is not None and self.has_key and self.answered != self.version

    @property
    def is_over(self) -> bool:
        """True if no message about an earlier row of the key can come any more (FK6)."""
        return self.left is None and self.opened == 0 and self.answered <= self.version

    @property
    def time(self) -> int:
        """The later event time of both rows."""
        return max(self.left_ms, self.right_ms) if self.has_key else self.left_ms

    def pair(self, needs_right: bool) -> _Pair | None:
        """Return the rows of the result that is shown; None: there is none."""
        left, time = self.left, self.left_ms
        if left is None:
            return None
        if not self.has_key:
            return None if needs_right else (left, None, time)
        if self.answered != self.version:
            return self.old
        right, right_ms = self.right, self.right_ms
        if right is None and needs_right:
            return None
        return left, right, time if time > right_ms else right_ms

    def encode(self) -> bytes:
        """Return the value of the store."""
        left, right, old = self.left, self.right, self.old
        flags = _KEY if self.has_key else 0
        if left is None:
            left = b""
        else:
            flags |= _LEFT
        if right is None:
            right = b""
        else:
            flags |= _RIGHT
        old_left = old_right = b""
        old_ms = 0
        if old is not None:
            old_left, found, old_ms = old
            flags |= _OLD
            if found is not None:
                flags, old_right = flags | _OLD_RIGHT, found
        head = _STATE.pack(
            flags,
            self.version,
            self.answered,
            self.opened,
            self.left_ms,
            self.right_ms,
            old_ms,
            len(left),
            len(right),
            len(old_left),
        )
        return b"".join((head, left, right, old_left, old_right))

    @classmethod
    def decode(cls, data: bytes) -> RowState:
        """Return the state in a value of the store.

        Raises:
            struct.error: it is cut.
        """
        flags, version, answered, opened, left_ms, right_ms, old_ms, left, right, old = (
            _STATE.unpack_from(data)
        )
        left += _STATE.size
        right += left
        old += right
        if old > len(data):
            raise struct.error(f"{old} bytes are expected, and there are {len(data)}")
        return cls(
            version,
            answered,
            opened,
            left_ms,
            right_ms,
            flags & _KEY != 0,
            data[_STATE.size : left] if flags & _LEFT else None,
            data[left:right] if flags & _RIGHT else None,
            (data[right:old], data[old:] if flags & _OLD_RIGHT else None, old_ms)
            if flags & _OLD
            else None,
        )


class ForeignRows:
    """Joins the left rows of one task with the answers to their subscriptions.

    Args:
        store: the transaction of the store of both rows.
        by: takes the left and the right row.
        needs_right: a result needs a right row.
        serdes: of the left and the right rows.
        needs_before: a step that follows reads the previous result of a change.
    """

    def __init__(
        self,
        store: StoreTransaction,
        by: Callable[[Any, Any], Any],
        needs_right: bool,
        serdes: tuple[Serde, Serde],
        needs_before: bool,
    ) -> None:
        self._store = store
        self._by = by
        self._needs_right = needs_right
        self._left, self._right = (serde.decode or bytes for serde in serdes)
        self._needs_before = needs_before

    def left(self, key: bytes, message: bytes, timestamp: int) -> Change | None:
        """Take a left row; return the change of the result, or None."""
        state = self._load(key)
        before = state.pair(self._needs_right)
        flags, state.version = HEAD.unpack_from(message)
        state.left = message[HEAD.size :] if flags & IS_ROW else None
        state.left_ms = timestamp
        state.has_key = bool(flags & HAS_KEY)
        state.opened += bool(flags & BEGINS)
        return self._settled(key, state, before)

    def right(self, key: bytes, message: bytes, timestamp: int) -> Change | None:
        """Take an answer; return the change of the result, or None."""
        kind, version = HEAD.unpack_from(message)
        state = self._load(key)
        if kind == ENDED:
            state.opened -= 1
            self._keep(key, state)
            return None
        if version < max(state.version, state.answered):
            return None
        before = state.pair(self._needs_right)
        state.answered, state.right_ms = version, timestamp
        state.right = message[HEAD.size :] if kind == FOUND else None
        return self._settled(key, state, before)

    def row(self, key: bytes) -> Entry | None:
        """Return the row of a key."""
        pair = self._load(key).pair(self._needs_right)
        value = None if pair is None else self._joined(pair)
        return None if pair is None or value is None else (value, pair[2])

    def _settled(self, key: bytes, state: RowState, before: _Pair | None) -> Change | None:
        if state.is_waiting:
            state.old = before
            self._keep(key, state)
            return None
        state.old = None
        self._keep(key, state)
        now = state.pair(self._needs_right)
        value = None if now is None else self._joined(now)
        is_read = value is None or self._needs_before
        old = self._joined(before) if before is not None and is_read else None
        if value is not None:
            return value, old, state.time
        return None if old is None or before is None else (None, old, max(state.time, before[2]))

    def _joined(self, pair: _Pair) -> Any:
        left, right, _ = pair
        return self._by(self._left(left), None if right is None else self._right(right))

    def _load(self, key: bytes) -> RowState:
        entry = self._store.get(key)
        if entry is None:
            return RowState()
        try:
            return RowState.decode(entry[0])
        except struct.error as error:
            raise self._store.form.held.damaged(entry[0], error) from error

    def _keep(self, key: bytes, state: RowState) -> None:
        if state.is_over:
            self._store.delete(key)
        else:
            self._store.put(key, (state.encode(), max(state.left_ms, state.right_ms)))
