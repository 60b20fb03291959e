"""A bound on the memory of uncommitted changes.

The changes that records make in stores are kept until their transaction is committed. With long
commit intervals, or large values, they could take any amount of memory; so a transaction is
committed early once the worker's changes exceed their budget. Their size is estimated after each
run of records, from the values that were put; only an estimate above the budget is replaced by an
exact measurement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eosframework.processing.stores.open_state import OpenState

BUDGET_BYTES = 32 * 2**20
"""The default: a quarter of the default of `worker.queue_megabytes`."""

SHARE = 4
"""The budget is `worker.queue_megabytes` divided by this. At a commit there are up to three
copies of the changes: in the store transaction, on their way to the changelog, and on their
way to the store."""


class ChangesBudget:
    """The memory budget of all tasks of a worker.

    Args:
        limit_bytes: the limit for uncommitted changes.
    """

    def __init__(self, limit_bytes: int = BUDGET_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._taken: dict[OpenState, int] = {}
        self._sum = 0

    def is_spent(self, stores: OpenState) -> bool:
        """Update the size of a task's changes, and return whether it must commit.

        Args:
            stores: the stores of the task.
        """
        self._note(stores, stores.changed_bytes)
        if self._sum < self._limit_bytes:
            return False
        stores.weigh()
        # At least half of the budget is left before the next exact measurement.
        self._note(stores, stores.changed_bytes)
        return self._sum >= self._limit_bytes // 2

    def is_free(self, stores: OpenState) -> None:
        """Note that a task's changes are committed or dropped."""
        self._sum -= self._taken.pop(stores, 0)

    def _note(self, stores: OpenState, size_bytes: int) -> None:
        self._sum += size_bytes - self._taken.get(stores, 0)
        self._taken[stores] = size_bytes
