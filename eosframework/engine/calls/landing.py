"""Calls for messages whose source is run without a queue: in audits, previews and drivers."""

from __future__ import annotations

import atexit
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from eosframework.engine.calls.call_runner import CallRunner
from eosframework.engine.calls.event_loop import SteppedLoop
from eosframework.engine.calls.flights import Flight, FlightPlan
from eosframework.errors import ConfigurationError
from eosframework.transactions.ports import Message

AHEAD_RECORDS = 1000
"""The records that may wait for calls, or ten times the concurrency if that is more: enough that
calls continue while a transaction is committed."""

WAIT_SECONDS = 0.001
"""The pause between two turns of the loop, which has no thread here."""


def ahead_of(plan: FlightPlan) -> int:
    """Return the most records of one partition that wait for calls."""
    return max(AHEAD_RECORDS, 10 * plan.most_calls)


class _Shared:
    """The runner of this process for such messages."""

    runner: CallRunner | None = None

    @classmethod
    def get(cls) -> CallRunner:
        """Return the runner, which ends with the process."""
        if cls.runner is None:
            cls.runner = CallRunner(new_loop=lambda: SteppedLoop(time.monotonic))
            atexit.register(cls.runner.close)
        return cls.runner

    @classmethod
    def forget(cls) -> None:
        """Forget the runner, whose sockets belong to the parent process."""
        cls.runner = None


os.register_at_fork(after_in_child=_Shared.forget)


class Landing:
    """Yields records whose calls have ended; others are called for here.

    Args:
        plan: of the source.
    """

    def __init__(self, plan: FlightPlan) -> None:
        self._plan = plan

    def all_of(self, messages: Iterable[Message]) -> list[Flight]:
        """Return all records."""
        return [*self(messages)]

    def __call__(self, messages: Iterable[Message]) -> Iterator[Flight]:
        """Yield the records in their order."""
        rest = iter(messages)
        for message in rest:
            if not isinstance(message, Flight):
                yield from self._called(chain((message,), rest))
                return
            yield message

    def _called(self, messages: Iterator[Message]) -> Iterator[Flight]:
        if self._plan.once is not None:
            raise ConfigurationError(
                f"{self._plan.once} would take effect again: this command runs the functions of "
                f"the topology over records that were processed. Audit with worker.receipts=true, "
                f"which calls nothing; in tests use TopologyTestDriver"
            )
        runner, owner = _Shared.get(), object()
        flights: deque[Flight] = deque()
        most, is_through = ahead_of(self._plan), False
        try:
            while True:
                while not is_through and len(flights) < most:
                    if flights and runner.room(self._plan.most_calls) <= 0:
                        break
                    if (message := next(messages, None)) is None:
                        is_through = True
                        break
                    flights.append(flight := Flight(message, self._plan, owner))
                    runner.hand_over(flight.calls)
                if not flights:
                    return
                while not flights[0].is_complete:
                    runner.collect()
                    runner.check()
                    if not flights[0].is_complete:
                        runner.wait(WAIT_SECONDS)
                runner.release((flights[0],))
                yield flights.popleft()
        finally:
            runner.cancel(owner, flights)
