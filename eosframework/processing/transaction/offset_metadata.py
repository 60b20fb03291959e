"""The metadata of committed offsets: a task's transaction number and stream time.

An offset alone does not show whether a transaction in doubt was committed: a transaction of timers
only moves no offset. The number does, because each transaction of a task increments it and commits
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from eosframework.records import Position

_FORMAT = "eos1"


@dataclass(frozen=True, slots=True)
class Progress:
    """A task's progress as of one committed transaction.

    Args:
        transaction: number of the last committed transaction; 0 before the first.
        stream_time: highest event time seen, in milliseconds since the epoch; 0 before any.
    """

    transaction: int = 0
    stream_time: int = 0

    def __str__(self) -> str:
        return f"{_FORMAT};{self.transaction};{self.stream_time}"

    @classmethod
    def parse(cls, metadata: str) -> Progress:
        """Parse the result of `str`; foreign metadata counts as no progress.

        The numbering of receipts may follow (`receipts.Series`). librdkafka stores the NUL of a C
        string as well; some clients return it.
        """
        match metadata.rstrip("\0").split(";"):
            case [format_, transaction, stream_time, *_] if format_ == _FORMAT:
                with suppress(ValueError):
                    return cls(int(transaction), int(stream_time))
                return cls()
            case _:
                return cls()


class Outcome(StrEnum):
    """The outcome of a transaction in doubt."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not_committed"
    OVERTAKEN = "overtaken"
    """Another worker has committed for this task since."""


def outcome(before: Progress, found: Progress) -> Outcome:
    """Return the outcome of the transaction after `before`.

    Args:
        before: the progress of the last transaction known to be committed.
        found: the progress with the stable offsets, read after the decision.
    """
    match found.transaction - before.transaction:
        case 0:
            return Outcome.NOT_COMMITTED
        case 1:
            return Outcome.COMMITTED
        case _:
            return Outcome.OVERTAKEN


def latest(positions: Iterable[Position]) -> Progress:
    """Return the progress of the last transaction that committed any of `positions`.

    A partition without recent records keeps the metadata of an older transaction.
    """
    return max(
        (Progress.parse(position.metadata) for position in positions),
        key=lambda progress: progress.transaction,
        default=Progress(),
    )
