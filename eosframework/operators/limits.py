"""Limits on the work that one record of a hot key may cause."""

from __future__ import annotations

from dataclasses import dataclass

HOT_KEY_LIMIT = 10_000
"""The default of `worker.hot_key_limit`."""

HELD_LIMIT = 100_000
"""The default of `worker.reorder_limit`."""

SIZE_BYTES = 128 * 2**20
"""The default of `worker.queue_megabytes`, in bytes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the work of a single record.

    Args:
        records: the most records of its key that a record may join in a stream-stream join, and the
            most sliding or session windows that a key may have at once.
        size_bytes: the most bytes of the values of all pairs of one record in a stream-stream join.
        held: the most records that the reorder step of a task may hold.
    """

    records: int = HOT_KEY_LIMIT
    size_bytes: int = SIZE_BYTES
    held: int = HELD_LIMIT

    @property
    def of_records(self) -> str:
        """The limit of a join, for messages."""
        return f"{self.records} records, or {self.size_bytes // 2**20} MB with them,"

    @property
    def advice(self) -> str:
        """The next step for the user, for messages."""
        return "raise worker.hot_key_limit (or worker.queue_megabytes for large records)"
