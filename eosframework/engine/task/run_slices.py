"""The number of records of a slice, and the early end of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import length_hint

from eosframework.transactions.ports import Message, Output

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


class RecordRun:
    """A run of records through a compiled source, which may end between two records.

    It ends once its time is over, or its outputs are many: they are produced before the next
    record.

    Args:
        messages: to run.
        out: the outputs.
        until: clock time; the first record is run at any time.
        clock: in seconds.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        out: Sequence[Output],
        until: float,
        clock: Callable[[], float],
    ) -> None:
        self._messages = messages
        self._waiting = iter(messages)
        self._out = out
        self._until = until
        self._clock = clock

    def __iter__(self) -> Iterator[Message]:
        out, until, clock = self._out, self._until, self._clock
        for message in self._waiting:
            yield message
            if clock() >= until or len(out) > RUN_OUTPUTS:
                return

    @property
    def done(self) -> int:
        """The number of records that were begun."""
        return len(self._messages) - length_hint(self._waiting)
