"""What a task stores beside each committed offset: its transaction number and stream time.

An offset alone does not tell whether a transaction in doubt was committed: one made of timers
only moves no offset. The number does, because it rises by one with every transaction of a task
and is committed in it.
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
        """Read what `str` wrote; metadata that others wrote counts as no progress.

        A numbering of receipts may follow (`receipts.Series`).

        librdkafka stores the NUL behind a C string as well; some clients return it.
        """
        match metadata.rstrip("\0").split(";"):
            case [format_, transaction, stream_time, *_] if format_ == _FORMAT:
                with suppress(ValueError):
                    return cls(int(transaction), int(stream_time))
                return cls()
            case _:
                return cls()


class Outcome(StrEnum):
    """What became of a transaction that was in doubt."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not_committed"
    OVERTAKEN = "overtaken"
    """Another worker committed for this task meanwhile."""


def outcome(before: Progress, found: Progress) -> Outcome:
    """Return what became of the transaction after `before`.

    Args:
        before: of the last transaction that is known to be committed.
        found: with the stable offsets, read when the transaction was decided.
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

    A partition that brought nothing lately keeps the metadata of an older transaction.
    """
    return max(
        (Progress.parse(position.metadata) for position in positions),
        key=lambda progress: progress.transaction,
        default=Progress(),
    )
