"""The calls of one worker, as its main thread sees them.

The main thread hands calls over and takes ended ones back; both are queues, so neither thread waits
for the other.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from eosframework.engine.calls.call_figures import CallSnapshot
from eosframework.engine.calls.event_loop import EventLoop, Loop
from eosframework.engine.calls.flights import Call, Flight
from eosframework.engine.calls.resources import Resources
from eosframework.engine.calls.step_calls import GRACE_SECONDS, StepCalls
from eosframework.errors import EosError, RunError
from eosframework.topology.graph.graph import Step

LIMIT_BYTES = 32 * 2**20
"""The default for held results: a quarter of the default of `worker.queue_megabytes`."""

LEARNING = 0.1
"""The weight of each record in the mean size of results."""


POLL_SECONDS = (0.002, 0.05)
"""The shortest and the longest wait for messages while calls are in flight; it doubles."""


class Effects(Protocol):
    """Decides about calls that take effect once; see `engine/effects`."""

    @property
    def is_writing(self) -> bool:
        """True while entries of its journal are on their way."""
        ...

    def ask(self, call: Call) -> None:
        """Take a call of a record; it is returned through `CallRunner.done`."""
        ...

    def ended(self, call: Call) -> bool:
        """Take an ended call, if it is one that this began."""
        ...

    def turn(self) -> None:
        """Begin calls, and return others, as far as the journal is."""
        ...


def _own_function(step: Step) -> Callable[..., Any]:
    return step.function.call


class CallPoll:
    """Chooses how long the main thread waits for messages while calls may end."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._seconds = POLL_SECONDS[0]

    def seconds(self, runner: CallRunner) -> float:
        """Return the longest wait now."""
        before, self._in_flight = self._in_flight, runner.in_flight
        if runner.has_ended:
            return 0.0
        if not self._in_flight:
            return math.inf
        if runner.effects is not None and runner.effects.is_writing:
            return POLL_SECONDS[0]
        moved = self._in_flight != before
        self._seconds = POLL_SECONDS[0] if moved else min(2 * self._seconds, POLL_SECONDS[1])
        return self._seconds


class CallRunner:
    """Runs calls on an event loop, which begins with the first one.

    Args:
        limit_bytes: the most bytes of results that are held.
        new_loop: makes the event loop.
        function_of: returns the function that is called for a step; None: its own.
        opens_resources: False: these functions get none.

    Attributes:
        in_flight: the number of calls that were handed over and have not been taken back.
        held_bytes: the estimated size of the results that wait for their records to be run.
        effects: decides about calls that take effect once; None: no step has any.
    """

    def __init__(
        self,
        limit_bytes: int = LIMIT_BYTES,
        new_loop: Callable[[], Loop] = EventLoop,
        function_of: Callable[[Step], Callable[..., Any]] | None = None,
        *,
        opens_resources: bool = True,
    ) -> None:
        self._function_of = function_of or _own_function
        self._opens_resources = opens_resources
        self.held_bytes = 0
        self.effects: Effects | None = None
        self._limit_bytes = limit_bytes
        self._mean_bytes: float | None = None
        self._loop: Loop | None = None
        self._new_loop = new_loop
        self._steps: dict[Step, StepCalls] = {}
        self._resources = Resources()
        self._ended: deque[Call] = deque()
        self._has_ended = threading.Event()
        self.in_flight = 0
        self._by_owner: Counter[object] = Counter()
        self._failure: EosError | None = None
        self._reported = False
        self._longest_seconds = 0.0
        self._events = structlog.get_logger("eosframework.worker")

    def figures(self) -> Mapping[str, CallSnapshot]:
        """Return the figures of the steps that have called for records, by their names."""
        steps = [*self._steps.items()]
        return {step.name: calls.figures.snapshot() for step, calls in steps}

    @property
    def has_ended(self) -> bool:
        """True if ended calls wait to be taken back."""
        return bool(self._ended)

    def room(self, concurrency: int) -> int:
        """Return the number of further records whose results may be held.

        Args:
            concurrency: of their calls; while the size of results is unknown, few may be in flight.
        """
        if self._mean_bytes is None:
            return 2 * concurrency - self.in_flight
        left_bytes = self._limit_bytes - self.held_bytes
        return int(left_bytes / max(self._mean_bytes, 1.0)) - self.in_flight

    def hand_over(self, calls: Sequence[Call]) -> None:
        """Begin calls; those that take effect once begin when their intents are committed."""
        self.in_flight += len(calls)
        for call in calls:
            self._by_owner[call.flight.owner] += 1
        if self.effects is None:
            self.begin(calls)
            return
        self.begin([call for call in calls if call.node.once is None])
        for call in calls:
            if call.node.once is not None:
                self.effects.ask(call)

    def begin(self, calls: Sequence[Call]) -> None:
        """Begin calls on the loop, without a count of them."""
        if not calls:
            return
        if self._loop is None:
            self._loop = self._new_loop()
        self._loop.post(self._accept, calls)

    def done(self, call: Call) -> None:
        """Take a call of a record that has a result or an error; on any thread."""
        self._ended.append(call)
        self._has_ended.set()

    def collect(self) -> None:
        """Take ended calls back, and begin those that follow from them."""
        ended, begun = self._ended, list[Call]()
        if self._loop is not None and self.in_flight:
            self._loop.step()
        if self.effects is not None:
            self.effects.turn()
        while ended:
            call = ended.popleft()
            if self.effects is not None and self.effects.ended(call):
                continue
            flight = call.flight
            if flight.is_cancelled:
                continue
            self.in_flight -= 1
            self._by_owner[flight.owner] -= 1
            flight.waiting -= 1
            if not flight.waiting:
                begun += flight.land()
                if flight.is_complete:
                    self._landed(flight)
        self.hand_over(begun)

    def _landed(self, flight: Flight) -> None:
        self.held_bytes += flight.result_bytes
        mean = self._mean_bytes
        size = float(flight.result_bytes)
        self._mean_bytes = size if mean is None else mean + (size - mean) * LEARNING

    def release(self, flights: Iterable[Flight]) -> None:
        """Note that results are no longer held."""
        self.held_bytes -= sum(flight.result_bytes for flight in flights)

    def cancel(self, owner: object, flights: Iterable[Flight]) -> None:
        """Cancel the calls of an owner.

        Args:
            owner: of the records.
            flights: all its records.
        """
        for flight in flights:
            flight.is_cancelled = True
            if flight.is_complete:
                self.held_bytes -= flight.result_bytes
        count = self._by_owner.pop(owner, 0)
        self.in_flight -= count
        if count and self._loop is not None:
            self._loop.post(self._cancel, owner)

    def abandon(self, owner: object) -> None:
        """Cancel the calls of an owner that were begun without a count."""
        if self._loop is not None:
            self._loop.post(self._cancel, owner)

    def wait(self, seconds: float) -> None:
        """Wait until a call has ended, at most for some time."""
        self._has_ended.clear()
        if not self._ended:
            self._has_ended.wait(seconds)

    def check(self) -> None:
        """Report a loop that is blocked.

        Raises:
            RunError: no call can continue.
        """
        if self._failure is not None:
            raise self._failure
        if self._loop is None or not self.in_flight:
            return
        if seconds := self._loop.blocked_seconds():
            self._note_blocked(seconds)
        else:
            self._reported = False

    def _note_blocked(self, seconds: float) -> None:
        assert self._loop is not None, "a loop is blocked"
        step, stack = self._loop.running()
        if not self._reported:
            self._reported = True
            self._events.warning(
                "event_loop_blocked",
                step=step,
                seconds=round(seconds, 1),
                stack=stack,
                fix="await instead, or run what blocks with asyncio.to_thread",
            )
        if seconds > self._longest_seconds + GRACE_SECONDS:
            raise RunError(
                f"step {step!r} has blocked the event loop for {seconds:.0f} s, longer than its "
                f"timeout, so no call can end:\n{stack}\nAwait instead, or run what blocks with "
                f"asyncio.to_thread. Complete records were committed; start the worker again"
            )

    def close(self) -> None:
        """Cancel all calls, close the resources and end the loop."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        self.in_flight = 0
        self._by_owner.clear()
        if not loop.finish(self._close()):
            step, stack = loop.running()
            self._events.warning("event_loop_left", step=step, stack=stack)

    # --- on the event loop ---------------------------------------------------------------------

    def _accept(self, calls: Sequence[Call]) -> None:
        used: dict[Step, StepCalls] = {}
        for call in calls:
            step = call.node.step
            if (found := used.get(step)) is None:
                found = used[step] = self._step(call)
            if not call.flight.is_cancelled:
                found.accept(call)
        for step in used.values():
            step.pump()

    def _step(self, call: Call) -> StepCalls:
        node = call.node
        if node.step not in self._steps:
            self._longest_seconds = max(self._longest_seconds, node.options.limits.timeout_seconds)
            self._steps[node.step] = StepCalls(
                asyncio.get_running_loop(),
                node,
                self._function_of(node.step),
                self._resources if self._opens_resources else None,
                self.done,
                self._fail,
                self._abandoned,
            )
        return self._steps[node.step]

    def _fail(self, error: EosError) -> None:
        self._failure = self._failure or error
        self._has_ended.set()

    def _abandoned(self, step: str, timeout_seconds: float) -> None:
        self._events.warning(
            "coroutine_abandoned",
            step=step,
            timeout_seconds=timeout_seconds,
            fix="let CancelledError pass; its effects may still come",
        )

    def _cancel(self, owner: object) -> None:
        for step in self._steps.values():
            step.cancel(owner)
            step.pump()

    async def _close(self) -> None:
        running = [task for step in self._steps.values() for task in step.cancel_all()]
        if running:
            await asyncio.wait(running, timeout=GRACE_SECONDS)
        for name, error in await self._resources.close():
            self._events.warning("resource_not_closed", resource=name, error=str(error))
