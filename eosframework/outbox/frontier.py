"""The frontier of the outbox: below it every row is visible or will never exist.

A row takes its number from a sequence before its transaction commits, so a lower number can
appear after a higher one. A writer holds a lock on the table from before it takes its first number
until after it became visible, or was rolled back. So:

    L1  read the last number that the sequence gave out
    L2  after that, see who holds the table's lock
    L3  once all of those are gone, every row up to that number is final

Who comes to hold the lock after L2 takes higher numbers. That orders all rows by their numbers, and
where a user's transactions lock a key before they publish, numbers of one key are in the order of
their locks. Transaction ids do not give that, not even in windows below the oldest running one:

    B takes id 10; C takes id 11 and stays open; A takes id 12, locks a key, publishes 1, commits;
    B locks the same key, publishes 2, commits: a window below 11 holds 2 and not yet 1
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Look:
    """What L1 and L2 saw.

    Args:
        number: the last one that the sequence gave out; 0: none yet.
        writers: transactions that hold the table's lock, by a name that no other ever has.
        prepared: the same, of those prepared for a two-phase commit: preparing renames them.
    """

    number: int
    writers: frozenset[str] = frozenset()
    prepared: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Mark:
    """A number that becomes final when none of `pending` is left."""

    number: int
    pending: frozenset[str]
    prepared: frozenset[str]


class Frontier:
    """Follows the looks at one outbox; they are taken over one session with the database."""

    def __init__(self) -> None:
        self._final = 0
        self._mark: _Mark | None = None

    @property
    def final(self) -> int:
        """Every row up to this number is there, or never will be."""
        return self._final

    @property
    def waits(self) -> bool:
        """Whether rows beyond `final` wait for a transaction that is still open."""
        return self._mark is not None

    def take(self, look: Look) -> int:
        """Note a look and return what is final, for a reader whose snapshot is newer than it."""
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
    """Return the mark with who is still open.

    A writer that is gone may have been prepared instead of ended, under a name that is new since
    the last look; which of the new ones it is cannot be told, so all of them are waited for.
    """
    pending = mark.pending & (look.writers | look.prepared)
    if mark.pending - pending - mark.prepared:
        pending |= look.prepared - mark.prepared
    return replace(mark, pending=pending, prepared=look.prepared)
