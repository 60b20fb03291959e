"""The calls of one step, on the event loop: slots, order, rate, timeouts and further attempts.

A slot is a call in flight. Owners, the tasks of the worker, take slots in turns, and a part of the
slots is left to owners without any: one owner whose calls hang does not stop the others.

An ended attempt frees its slot at once. With `order: key` the next call of a key begins when the
call before it has no further attempt, and has ended also if it was cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Any

from eosframework.engine.calls.batched_calls import BatchedFunction
from eosframework.engine.calls.call_figures import CallFigures
from eosframework.engine.calls.flights import Call, CallNode
from eosframework.engine.calls.resources import Resources
from eosframework.errors import EosError, RunError

GRACE_SECONDS = 1.0
"""The time that a cancelled coroutine has to end before it is abandoned."""

LEFT_SHARE = 8
"""The share of the slots that is left to owners without any is one of so many."""

Done = Callable[[Call], None]
Abandoned = Callable[[str, float], None]


class StepCalls:
    """The calls of one step.

    Args:
        loop: on which everything here runs.
        node: the step.
        function: is called for its records.
        resources: of the worker; None: the function gets none.
        done: takes a call that has a result or an error.
        failed: takes an error that ends the worker.
        abandoned: takes the name of a step whose coroutine swallows its cancellation.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: CallNode,
        function: Callable[..., Any],
        resources: Resources | None,
        done: Done,
        failed: Callable[[EosError], None],
        abandoned: Abandoned,
    ) -> None:
        self._loop = loop
        self._node = node
        self._name = node.step.name
        batch = node.options.limits.batch
        name = node.step.function.name
        self._call = function if batch is None else BatchedFunction(function, batch, name)
        self._limits = node.options.limits
        self._resources = resources
        self._done = done
        self._failed = failed
        self._on_abandoned = abandoned
        has_resources = resources is not None and node.options.resources
        self._arguments: dict[str, Any] | None = None if has_resources else {}
        self._opening: asyncio.Task[None] | None = None
        self._waiting: dict[object, deque[Call]] = {}
        self._turns: deque[object] = deque()
        self._running: dict[asyncio.Task[Any], Call] = {}
        self._in_flight: Counter[object] = Counter()
        self._taken = 0
        self._owners: set[object] = set()
        self._keys: dict[Hashable, deque[Call]] = {}
        self._resting: dict[Call, asyncio.TimerHandle] = {}
        self._next_at = 0.0
        self._pump_timer: asyncio.TimerHandle | None = None
        self._abandoned = 0
        self.figures = CallFigures()

    def accept(self, call: Call) -> None:
        """Begin a call, at once or when its turn comes."""
        self.figures.wanted += 1
        if self._limits.by_key and call.key is not None:
            key = _order_key(call)
            if key in self._keys:
                self._keys[key].append(call)
                return
            self._keys[key] = deque()
        self._wait(call)

    def _wait(self, call: Call, *, first: bool = False) -> None:
        owner = call.flight.owner
        self._owners.add(owner)
        lane = self._waiting.get(owner)
        if lane is None:
            lane = self._waiting[owner] = deque()
            self._turns.append(owner)
        if first:
            lane.appendleft(call)
        else:
            lane.append(call)

    def pump(self) -> None:
        """Begin the calls for which there are slots."""
        if self._arguments is None:
            if self._turns and self._opening is None:
                self._opening = self._loop.create_task(self._open(), name=self._name)
            return
        passed = 0
        while self._turns and passed < len(self._turns):
            if self._taken >= self._limits.concurrency or not self._rate_allows():
                return
            owner = self._turns.popleft()
            if self._leaves_slots(owner):
                self._turns.append(owner)
                passed += 1
                continue
            lane = self._waiting[owner]
            self._start(lane.popleft())
            if lane:
                self._turns.append(owner)
            else:
                del self._waiting[owner]
            passed = 0

    def _leaves_slots(self, owner: object) -> bool:
        """Return whether an owner has to leave the free slots to others."""
        free = self._limits.concurrency - self._taken
        most = self._limits.concurrency // LEFT_SHARE
        if free > most or not self._in_flight[owner]:
            return False
        without = sum(1 for other in self._owners if not self._in_flight[other])
        return free <= min(without, most)

    def _rate_allows(self) -> bool:
        if self._limits.rate is None:
            return True
        now = self._loop.time()
        if now < self._next_at:
            if self._pump_timer is None:
                self._pump_timer = self._loop.call_at(self._next_at, self._pump_again)
            return False
        # A loop that turns late keeps the rate; after a pause it does not make up for it.
        late = now - self._next_at
        step = 1 / self._limits.rate
        self._next_at = (self._next_at if late < max(step, 0.05) else now) + step
        return True

    def _pump_again(self) -> None:
        self._pump_timer = None
        self.pump()

    async def _open(self) -> None:
        assert self._resources is not None, "the function gets resources"
        try:
            wanted = self._node.options.resources
            self._arguments = await self._resources.open_all(wanted, self._name)
        except EosError as error:
            self._failed(error)
        else:
            self.pump()

    # --- one attempt -------------------------------------------------------------------------

    def _start(self, call: Call) -> None:
        call.attempt += 1
        call.has_expired = False
        self._in_flight[call.flight.owner] += 1
        self._taken += 1
        self.figures.in_flight += 1
        self.figures.retries += call.attempt > 1
        call.began_at = self._loop.time()
        task = self._loop.create_task(self._run(call), name=self._name)
        self._running[task] = call
        call.timer = self._loop.call_later(self._limits.timeout_seconds, self._expire, task)
        task.add_done_callback(self._ended)

    async def _run(self, call: Call) -> Any:
        assert self._arguments is not None, "resources are open"
        try:
            found = call.run(self._call, self._arguments)
            if not inspect.isawaitable(found):
                raise TypeError(
                    f"{self._node.step.function.name} returned {type(found).__name__}, which is no "
                    f"coroutine; expected a function declared with `async def`"
                )
            return await found
        except (SystemExit, KeyboardInterrupt) as error:
            # On the loop they would end its thread.
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    def _expire(self, task: asyncio.Task[Any]) -> None:
        self._running[task].has_expired = True
        self._cancel(task)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        call = self._running[task]
        call.timer.cancel()
        call.timer = self._loop.call_later(GRACE_SECONDS, self._abandon, task)
        task.cancel()

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        """Leave a coroutine alone that swallows its cancellation; its slot is free."""
        call = self._running.pop(task)
        self._abandoned += 1
        self._on_abandoned(self._name, self._limits.timeout_seconds)
        if self._abandoned >= self._limits.concurrency:
            self._failed(
                RunError(
                    f"step {self._name!r} has {self._abandoned} coroutines that swallow their "
                    f"cancellation and never end, as many as its concurrency. Let CancelledError "
                    f"pass (`except Exception` does, `except BaseException` does not), and start "
                    f"the worker again; complete records were committed"
                )
            )
        self._over(call, self._timeout() if call.has_expired else None)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        call = self._running.pop(task, None)
        if call is None:  # It was abandoned.
            self._abandoned -= 1
            if not task.cancelled():
                task.exception()  # Taken, so that asyncio does not report it.
            return
        call.timer.cancel()
        if call.has_expired:
            if not task.cancelled():
                task.exception()
            self._over(call, self._timeout())
        elif task.cancelled():
            self._over(call, RuntimeError("the coroutine was cancelled, but not by its timeout"))
        elif (error := task.exception()) is not None:
            self._over(call, error)
        else:
            call.result = task.result()
            self._over(call, None)

    def _timeout(self) -> TimeoutError:
        seconds = self._limits.timeout_seconds
        return TimeoutError(f"no result within {seconds:g} s, the timeout of {self._name}")

    def _over(self, call: Call, error: BaseException | None) -> None:
        """Free the slot of an attempt, and end its call unless there is another attempt."""
        owner = call.flight.owner
        self._in_flight[owner] -= 1
        self._taken -= 1
        self.figures.in_flight -= 1
        self.figures.timeouts += call.has_expired
        self.figures.seconds.add(self._loop.time() - call.began_at)
        is_wanted = not call.flight.is_cancelled
        waits = self._limits.retry_seconds
        if error is not None and is_wanted and call.attempt <= len(waits):
            pause = waits[call.attempt - 1]
            self._resting[call] = self._loop.call_later(pause, self._retry, call)
        else:
            call.error = error
            self.figures.wanted -= 1
            self._next_of_key(call)
            if is_wanted:
                self._done(call)
        self.pump()

    def _retry(self, call: Call) -> None:
        del self._resting[call]
        self._wait(call, first=True)
        self.pump()

    def _next_of_key(self, call: Call) -> None:
        if not self._limits.by_key or call.key is None:
            return
        key = _order_key(call)
        if following := self._keys[key]:
            self._wait(following.popleft())
        else:
            del self._keys[key]

    # --- cancellation ------------------------------------------------------------------------

    def cancel(self, owner: object) -> None:
        """Cancel the calls of an owner; they are not reported."""
        dropped = [*self._waiting.pop(owner, ())]
        if owner in self._turns:
            self._turns.remove(owner)
        for call in [call for call in self._resting if call.flight.owner is owner]:
            self._resting.pop(call).cancel()
            dropped.append(call)
        for following in self._keys.values():
            kept = [call for call in following if call.flight.owner is not owner]
            self.figures.wanted -= len(following) - len(kept)
            following.clear()
            following.extend(kept)
        self.figures.wanted -= len(dropped)
        for call in dropped:
            self._next_of_key(call)
        for task, call in [*self._running.items()]:
            if call.flight.owner is owner:
                self._cancel(task)
        self._owners.discard(owner)

    def cancel_all(self) -> list[asyncio.Task[Any]]:
        """Cancel all calls; return the coroutines that run."""
        if self._opening is not None:
            self._opening.cancel()
        for owner in {*self._owners, *(call.flight.owner for call in self._running.values())}:
            self.cancel(owner)
        return [*self._running]


def _order_key(call: Call) -> Hashable:
    """Return the key by which calls of an owner are serial."""
    key = call.key if call.key_bytes is None else call.key_bytes
    try:
        hash(key)
    except TypeError:
        key = repr(key)
    return call.flight.owner, key
