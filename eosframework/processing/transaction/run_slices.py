"""The number of records that run between two looks at the clock, and the early end of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from eosframework.processing.ports import Message

SLICE_SECONDS = 0.02
"""Target duration of a slice: the clock is read after each."""

SLICE_RECORDS = 10_000
"""The most records of a slice."""

FIRST_RECORDS = 1
"""The first slice: a single record may take as long as a transaction."""

RUN_OUTPUTS = 1000
"""A run of records ends once they have given more outputs: those of one record are bounded,
those of many records with many outputs are not."""

REMEMBERED = 0.75
"""Weight of earlier slices after each new one."""

_LEAST_SECONDS = 1e-7


class SliceSize:
    """Chooses slices that take about `SLICE_SECONDS`, from the durations of earlier ones.

    It uses the mean. If other programs use the processor, a slice now and then waits for longer
    than it works; sized by the longest slice, all others would be of a few records, and the fixed
    cost of a slice exceeds theirs.
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
        """Record the duration of a slice."""
        self._seconds = self._seconds * REMEMBERED + max(seconds, _LEAST_SECONDS * records)
        self._records = self._records * REMEMBERED + records


class EndableRun:
    """A run of records through a compiled source, which another thread may end between two records.

    No Python check runs for each record: the loop ends at None, and `end` puts one first.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._waiting: deque[Message | None] = deque(messages)
        self._waiting.append(None)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._waiting.popleft, None)

    def end(self) -> None:
        """Make the current record the last; from any thread."""
        self._waiting.appendleft(None)

    def left(self) -> list[Message]:
        """Return the records that were not begun."""
        # Copied at once: the watcher may end a run that is over.
        return [message for message in tuple(self._waiting) if message is not None]


def end_run(messages: object) -> None:
    """Make the current record the last, if the messages are a run that can end."""
    if isinstance(messages, EndableRun):
        messages.end()
