"""The event loops of calls: a thread of its own in a worker, turns of its owner in a driver.

The thread is a daemon: a coroutine that blocks the loop for ever must not keep the process alive.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

PING_SECONDS = 0.25
"""The main thread asks the loop for a sign of life at this interval."""

BLOCKED_SECONDS = 1.0
"""A loop that gives none for so long is blocked."""

CLOSE_SECONDS = 5.0
"""The time for cancelled coroutines and for closing resources."""

STEP_ROUNDS = 20
"""The rounds of the loop in one step of a driver: a chain of awaits needs several."""


class Loop(Protocol):
    """A loop that runs calls."""

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function on the loop, after what was posted before."""
        ...

    def step(self) -> None:
        """Let the loop run, if it does not do so by itself."""
        ...

    def blocked_seconds(self) -> float:
        """Return for how long the loop has given no sign of life; 0: it gives them."""
        ...

    def running(self) -> tuple[str, str]:
        """Return the name of the coroutine that runs now, and its stack."""
        ...

    def finish(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run a last coroutine and end; return False if the loop is blocked."""
        ...


class EventLoop:
    """An asyncio loop that runs in a thread until it is finished; see `Loop`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pinged_at: float | None = None
        self._ping_at = self._checked_at = 0.0
        self._last: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="eosframework-calls", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function on the loop, after what was posted before."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def step(self) -> None:
        """Do nothing: the thread runs."""

    def blocked_seconds(self) -> float:
        """Return for how long the loop has given no sign of life; 0: it gives them."""
        now = time.monotonic()
        was_away, self._checked_at = now - self._checked_at > BLOCKED_SECONDS / 2, now
        if self._pinged_at is None:
            if now >= self._ping_at:
                self._pinged_at = now
                self.post(self._pong)
            return 0.0
        if was_away:  # This process may have been suspended as a whole.
            self._pinged_at = now
        waited = now - self._pinged_at
        return waited if waited > BLOCKED_SECONDS else 0.0

    def _pong(self) -> None:
        self._ping_at, self._pinged_at = time.monotonic() + PING_SECONDS, None

    def running(self) -> tuple[str, str]:
        """Return the name of the coroutine that runs now, and its stack."""
        task = asyncio.current_task(self._loop)
        frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        frame = frames.get(self._thread.ident or 0)
        found = [] if frame is None else [*traceback.extract_stack(frame)]
        inner = [line for line in found if "asyncio" not in line.filename]
        own = next(
            (n for n, line in enumerate(inner) if line.filename.endswith("step_calls.py")), -1
        )
        shown = "".join(traceback.format_list(inner[own + 1 :] or inner)).rstrip()
        return ("an unknown coroutine" if task is None else task.get_name()), shown

    def finish(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run a last coroutine and end the thread; return False if the loop is blocked."""
        done = threading.Event()

        def begin() -> None:
            self._last = self._loop.create_task(_bounded(work))
            self._last.add_done_callback(lambda _: done.set())

        self.post(begin)
        if not done.wait(2 * CLOSE_SECONDS):
            work.close()
            return False
        self.post(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)
        return True


async def _bounded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await asyncio.wait_for(work, CLOSE_SECONDS)
    except TimeoutError:
        return


class _ClockLoop(asyncio.SelectorEventLoop):
    """A loop whose time is that of a clock."""

    def __init__(self, clock: Callable[[], float], selector: selectors.BaseSelector) -> None:
        self._clock = clock
        super().__init__(selector)

    def time(self) -> float:
        """Return the clock's time."""
        return self._clock()


class SteppedLoop:
    """A loop that runs in steps of its owner, on the owner's clock; see `Loop`.

    So the order of events depends on nothing but that clock, unless coroutines use sockets: these
    are waited for in real time, as long as the clock has advanced.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._stepped_at = clock()
        self._skipped_seconds = [0.0]
        skipped = self._skipped_seconds
        self._loop = _ClockLoop(lambda: clock() + skipped[0], self._selector)
        weakref.finalize(self, self._loop.close)

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the next step, after what was posted before."""
        self._loop.call_soon(function, *arguments)

    def step(self) -> None:
        """Run what is ready."""
        now = self._clock()
        passed, self._stepped_at = now - self._stepped_at, now
        if passed > 0:
            self._wait_for_sockets(passed)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._turn()
            return
        # In a notebook the thread runs a loop already.
        thread = threading.Thread(target=self._turn)
        thread.start()
        thread.join()

    def _turn(self) -> None:
        for _ in range(STEP_ROUNDS):
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()

    def _wait_for_sockets(self, seconds: float) -> None:
        if len(self._selector.get_map()) > 1:  # One is the loop's own.
            self._selector.select(seconds)

    def blocked_seconds(self) -> float:
        """Return 0: a step waits for the loop."""
        return 0.0

    def running(self) -> tuple[str, str]:
        """Return nothing: no coroutine runs between two steps."""
        return "", ""

    def finish(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run a last coroutine; its waits are over at once."""
        last = self._loop.create_task(work)
        until = time.monotonic() + CLOSE_SECONDS
        while not last.done() and time.monotonic() < until:
            self._skipped_seconds[0] += CLOSE_SECONDS
            self._wait_for_sockets(0.01)
            self.step()
        return last.done()
