"""What a task stores beside each committed offset: its transaction number and stream time.

An offset alone does not tell whether a transaction in doubt was committed: one made of timers
only moves no offset. The number does, because it rises by one with every transaction of a task
and is committed in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
                return cls(int(transaction), int(stream_time))
            case _:
                return cls()


def latest(positions: Iterable[Position]) -> Progress:
    """Return the progress of the last transaction that committed any of `positions`.

    A partition that brought nothing lately keeps the metadata of an older transaction.
    """
    return max(
        (Progress.parse(position.metadata) for position in positions),
        key=lambda progress: progress.transaction,
        default=Progress(),
    )
