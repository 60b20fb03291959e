"""The rows of a join of two tables by a foreign key (FK4 to FK6 of `foreign_keys`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eosframework.engine.operators.entries import Entry
from eosframework.engine.operators.foreign_keys import (
    FOUND,
    HAS_KEY,
    HEAD,
    IS_ROW,
    OF_KEY,
    OF_TASK,
    TASK,
)
from eosframework.engine.operators.store_transaction import StoreTransaction
from eosframework.serialization.row_states import (
    Cut,
    Pair,
    RowState,
    decode_state,
    encode_state,
)
from eosframework.serialization.serdes import Serde

Change = tuple[Any, Any, int]
"""The new row of the join, the one before, and the event time."""


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
        flags, version = message[0], message[1:HEAD]
        place = OF_KEY + key
        state = self._load(place)
        before = state.pair(self._needs_right)
        state.version, state.left_ms = version, timestamp
        state.has_key = flags & HAS_KEY != 0
        if flags & IS_ROW:
            state.left = message[HEAD:]
        else:
            state.left = None
            self._note_deletion(version, timestamp)
        return self._settled(place, state, before)

    def right(self, key: bytes, message: bytes, timestamp: int) -> Change | None:
        """Take an answer; return the change of the result, or None."""
        version = message[1:HEAD]
        place = OF_KEY + key
        state = self._load(place)
        last = state.version or self._last_deletion(version)
        if version < last or version < state.answered:
            return None
        before = state.pair(self._needs_right)
        state.answered, state.right_ms = version, timestamp
        state.right = message[HEAD:] if message[0] == FOUND else None
        return self._settled(place, state, before)

    def row(self, key: bytes) -> Entry | None:
        """Return the row of a key."""
        pair = self._load(OF_KEY + key).pair(self._needs_right)
        value = None if pair is None else self._joined(pair)
        return None if pair is None or value is None else (value, pair[2])

    def _note_deletion(self, version: bytes, timestamp: int) -> None:
        # A replayed record may be older than the last one.
        last = max(version, self._last_deletion(version))
        self._store.put(OF_TASK + version[:TASK], (last, timestamp))

    def _last_deletion(self, version: bytes) -> bytes:
        """Return the version of the last deletion that the task of a version has sent (FK6).

        A task sends its rows in the order of their versions. So if a row with a lower version than
        that had not come yet, the deletion had not come either.
        """
        entry = self._store.get(OF_TASK + version[:TASK])
        return b"" if entry is None else entry[0]

    def _settled(self, place: bytes, state: RowState, before: Pair | None) -> Change | None:
        """Keep a state, and return the change of the result; None: it stays."""
        left = state.left
        if left is not None and state.has_key and state.answered != state.version:
            state.old = before
            self._keep(place, state)
            return None
        state.old = None
        if left is None and state.answered <= state.version:
            self._store.delete(place)
        else:
            self._keep(place, state)
        now = state.pair(self._needs_right)
        value = None if now is None else self._joined(now)
        is_read = value is None or self._needs_before
        old = self._joined(before) if before is not None and is_read else None
        if now is not None and value is not None:
            return value, old, now[2]
        return None if old is None or before is None else (None, old, max(state.time, before[2]))

    def _joined(self, pair: Pair) -> Any:
        left, right, _ = pair
        return self._by(self._left(left), None if right is None else self._right(right))

    def _load(self, place: bytes) -> RowState:
        entry = self._store.get(place)
        if entry is None:
            return RowState()
        try:
            return decode_state(entry[0])
        except Cut as error:
            raise self._store.form.held.damaged(entry[0], error) from error

    def _keep(self, place: bytes, state: RowState) -> None:
        self._store.put(place, (encode_state(state), max(state.left_ms, state.right_ms)))
