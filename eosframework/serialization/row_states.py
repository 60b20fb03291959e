"""The state of one key in a join of two tables by a foreign key (ADR 41), as its store has it."""

from __future__ import annotations

import msgspec

Pair = tuple[bytes, bytes | None, int]
"""The encoded left and right row of a result, and its event time."""


class RowState(msgspec.Struct, array_like=True, gc=False):
    """The rows of one key.

    Attributes:
        version: of the last left row.
        answered: version of the last answer; empty: there was none.
        left: the left row; None: there is none.
        has_key: its foreign key is not null.
        right: the right row of the last answer; None: there is none.
        left_ms: event time of the left row, or of its deletion.
        right_ms: event time of the last answer.
        old: while the answer has not come, the result that stays.
    """

    version: bytes = b""
    answered: bytes = b""
    left_ms: int = 0
    right_ms: int = 0
    has_key: bool = False
    left: bytes | None = None
    right: bytes | None = None
    old: Pair | None = None

    @property
    def time(self) -> int:
        """The later event time of both rows."""
        return max(self.left_ms, self.right_ms) if self.has_key else self.left_ms

    def pair(self, needs_right: bool) -> Pair | None:
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


encode_state = msgspec.msgpack.Encoder().encode
"""Return the value of the store."""

decode_state = msgspec.msgpack.Decoder(RowState).decode
"""Return the state in a value of the store.

Raises:
    Cut: it ends before its parts.
"""

Cut = msgspec.DecodeError
