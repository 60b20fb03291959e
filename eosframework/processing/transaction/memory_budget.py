"""A bound on the memory that the changes of a worker's open transactions take.

What a record changes in stores is kept until its transaction is committed. With long commit
intervals, or large values, that could be any amount; so a transaction is committed early once the
worker's changes take more than their budget. What they take is estimated after each run of records,
by the values that were put; only where that is too much are the values looked at that are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eosframework.processing.stores.open_state import OpenState

BUDGET_BYTES = 32 * 2**20
"""The default: a quarter of that of `worker.queue_megabytes`."""

SHARE = 4
"""Part of `worker.queue_megabytes` for changes. At a commit there are up to three copies of them:
in the session, on their way into the changelog, and on their way into the store."""


class ChangesBudget:
    """Of all tasks of a worker.

    Args:
        limit_bytes: for what their open transactions changed.
    """

    def __init__(self, limit_bytes: int = BUDGET_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._taken: dict[OpenState, int] = {}
        self._sum = 0

    def is_spent(self, stores: OpenState) -> bool:
        """Note what the changes of a task take now, and tell whether it has to commit them.

        Args:
            stores: of the task.
        """
        self._note(stores, stores.changed_bytes)
        if self._sum < self._limit_bytes:
            return False
        stores.weigh()
        # Half is left at least before the next look at every change.
        self._note(stores, stores.changed_bytes)
        return self._sum >= self._limit_bytes // 2

    def is_free(self, stores: OpenState) -> None:
        """Note that a task's changes are committed, or forgotten."""
        self._sum -= self._taken.pop(stores, 0)

    def _note(self, stores: OpenState, size_bytes: int) -> None:
        self._sum += size_bytes - self._taken.get(stores, 0)
        self._taken[stores] = size_bytes
