"""The frontier of the outbox: below it every row is visible or will never exist.

A row takes its number from a sequence before its transaction commits, so a lower number can
appear after a higher one. A writer holds a lock on the table from before it takes its first number
until after its row became visible or was rolled back. So:

    L1  read the last number that the sequence gave out
    L2  after that, list the transactions that hold the table's lock
    L3  once all of them have ended, every row up to that number is final

A transaction that takes the lock after L2 takes higher numbers. So rows are sent in the order of
their numbers, and where users' transactions lock a key before they publish, the numbers of one key
are in the order of those locks. Transaction ids give no such order, not even below the oldest
running one:

    1  B takes id 10
    2  C takes id 11 and stays open
    3  A takes id 12, locks a key, publishes 1, commits
    4  B locks the same key, publishes 2, commits: the rows below id 11 contain 2 and not yet 1
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Look:
    """The result of L1 and L2.

    Args:
        number: the last one that the sequence gave out; 0: none yet.
        writers: transactions that hold the table's lock, by names that are never used again.
        prepared: the same for prepared transactions (two-phase commit); preparing renames one.
    """

    number: int
    writers: frozenset[str] = frozenset()
    prepared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Mark:
    """A number that becomes final when all of `pending` have ended."""

    number: int
    pending: frozenset[str]
    prepared: frozenset[str]


class Frontier:
    """The frontier of one outbox, from looks that are taken in one database session."""

    def __init__(self) -> None:
        self._final = 0
        self._mark: _Mark | None = None

    @property
    def final(self) -> int:
        """The number up to which every row is visible or will never exist."""
        return self._final

    @property
    def waits(self) -> bool:
        """True while rows beyond `final` wait for an open transaction."""
        return self._mark is not None

    def take(self, look: Look) -> int:
        """Note a look and return the final number, valid for snapshots taken after the look."""
        if self._mark is not None:
            self._mark = _later(self._mark, look)
            if not self._mark.pending:
                self._final = self._mark.number
                self._mark = None
        if self._mark is None and look.number > self._final:
            pending = look.writers | look.prepared
            if pending:
                self._mark = _Mark(look.number, pending, look.prepared)
            else:
                self._final = look.number
        return self._final


def _later(mark: _Mark, look: Look) -> _Mark:
    """Return the mark with the transactions that are still open.

    A writer that no longer holds the lock may have been prepared instead of ended, under a new
    name. The new names cannot be attributed to writers, so the mark waits for all of them.
    """
    pending = mark.pending & (look.writers | look.prepared)
    if mark.pending - pending - mark.prepared:
        pending |= look.prepared - mark.prepared
    return replace(mark, pending=pending, prepared=look.prepared)
