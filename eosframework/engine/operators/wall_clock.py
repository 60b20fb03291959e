"""The times at which the wall clock calls functions of a task (ADR 37).

WT1. a due time is an entry of a store: the time of a timer with its key, or the last time of an
    interval. So it follows its partition, and a restored store has it
WT2. a call, what it changes and returns, and the change of its due time are one transaction
WT3. a due time that has passed is due until a transaction with its call is committed
WT4. of several times of an interval that have passed, the latest alone is called
WT5. an interval begins with the first transaction that notes it, which calls nothing

A crash or an abort before the commit leaves the entry, and the call is repeated (WT3); after it the
entry is gone or has the time of the call, for whichever worker owns the partition next (WT1). So
each due time has the effects of one call.

The times of an interval are its multiples since the epoch. Without WT5 an application that is
started at noon would call a function of each midnight at once; with a start that is kept in memory
alone, workers that restart more often than the interval would never call it.
"""

from __future__ import annotations

from collections.abc import Generator

from eosframework.engine.operators.handlers import Timers
from eosframework.engine.operators.store_transaction import StoreTransaction
from eosframework.engine.operators.windows import NEVER, Alarm, TimedState
from eosframework.topology.graph.graph import WallClock

LAST = b"last"
"""The key of the last time of an interval."""


class Interval(TimedState):
    """The times of an interval in one task.

    Args:
        store: the transaction of the store with the last time.
        interval_ms: the times are its multiples since the epoch.
        is_called: False: another task of the application calls the function.
    """

    def __init__(self, store: StoreTransaction, interval_ms: int, *, is_called: bool) -> None:
        super().__init__(Alarm())
        self._store = store
        self._interval_ms = interval_ms
        self._is_called = is_called
        self._last: int | None = None

    def begin(self) -> None:
        """Read the last time: the store may have been replaced."""
        entry = self._store.get(LAST)
        self._last = None if entry is None else entry[0]

    def due(self) -> int:
        """Return the next time; 0 while none is noted."""
        if not self._is_called:
            return NEVER
        return 0 if self._last is None else self._before(self._last) + self._interval_ms

    def closing(self, now: int) -> Generator[tuple[bytes, int] | None]:
        """Yield the latest time up to `now`, if it is due (WT4).

        It counts as called when the next one is requested, as a timer does.
        """
        if self.due() > now:
            return
        latest = self._before(now)
        yield None if self._last is None else (LAST, latest)
        self._store.put(LAST, (latest, latest))
        self._last = latest

    def _before(self, time: int) -> int:
        return time - time % self._interval_ms


def due_times(node: WallClock, store: StoreTransaction, partition: int) -> Timers | Interval:
    """Return the due times of a function in one task.

    Args:
        node: the function.
        store: the transaction of its store.
        partition: of the task; of those that share a function, partition 0 calls it.
    """
    if node.every is None:
        return Timers(store, Alarm())
    is_called = partition == 0 or not node.every.is_once
    return Interval(store, node.every.interval_ms, is_called=is_called)
