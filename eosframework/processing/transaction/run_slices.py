"""How many records are run before the clock is looked at, and how a run of them ends early."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from eosframework.processing.ports import Message

SLICE_SECONDS = 0.02
"""How long a slice of a batch should take: after each the clock is looked at."""

SLICE_RECORDS = 10_000
"""More are never in one slice."""

FIRST_RECORDS = 1
"""Of which nothing is known yet: each may take as long as a transaction."""

RUN_OUTPUTS = 1000
"""A run of records ends once they have given more: what a record gives is bounded, and what many
give that give much is not."""

REMEMBERED = 0.75
"""Share of what is known that a new slice leaves."""

_LEAST_SECONDS = 1e-7


class SliceSize:
    """Chooses sizes that take about `SLICE_SECONDS`, by what the last records took.

    It goes by their mean. Where other programs use the processor, a slice now and then stands
    still for longer than it works; going by the longest, all others would be of a few records,
    and to begin and end a slice costs more than these.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._records = 0.0

    def limit(self) -> int:
        """Return the most records of the next slice."""
        if not self._records:
            return FIRST_RECORDS
        return max(1, min(SLICE_RECORDS, int(SLICE_SECONDS * self._records / self._seconds)))

    def took(self, seconds: float, records: int) -> None:
        """Note how long a slice took."""
        self._seconds = self._seconds * REMEMBERED + max(seconds, _LEAST_SECONDS * records)
        self._records = self._records * REMEMBERED + records


class EndableRun:
    """Records on their way through a compiled source, which another thread may end between two.

    Nothing is asked for each record in Python: the loop ends at None, and `end` puts one in front.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._waiting: deque[Message | None] = deque(messages)
        self._waiting.append(None)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._waiting.popleft, None)

    def end(self) -> None:
        """Let the record that is being run be the last; from any thread."""
        self._waiting.appendleft(None)

    def left(self) -> list[Message]:
        """Return the records that were not begun."""
        return [message for message in self._waiting if message is not None]


def end_run(messages: object) -> None:
    """Let the record that is being run be the last, where messages are of a run that can end."""
    if isinstance(messages, EndableRun):
        messages.end()
