"""The event loop of calls, in a thread of its own.

The thread is a daemon: a coroutine that blocks the loop for ever must not keep the process alive.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

PING_SECONDS = 0.25
"""The main thread asks the loop for a sign of life at this interval."""

BLOCKED_SECONDS = 1.0
"""A loop that gives none for so long is blocked."""

CLOSE_SECONDS = 5.0
"""The time for cancelled coroutines and for closing resources."""

STEP_ROUNDS = 20
"""The rounds of the loop in one step of a driver: a chain of awaits needs several."""


class EventLoop:
    """An asyncio loop that runs in a thread until it is closed."""

    def __init__(self) -> None:
        self.loop = self._new_loop()
        self._pinged_at: float | None = None
        self._ping_at = self._checked_at = 0.0
        self._last: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="eosframework-calls", daemon=True)
        self._thread.start()

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function on the loop, after what was posted before."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def step(self, blocked: Callable[[float], None]) -> None:
        """Let the loop run; this one does so by itself."""

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
        task = asyncio.current_task(self.loop)
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
        """Run a last coroutine, and end the thread; return False if the loop is blocked."""
        done = threading.Event()

        async def last() -> None:
            try:
                await asyncio.wait_for(work, CLOSE_SECONDS)
            except TimeoutError:
                pass
            finally:
                done.set()

        def begin() -> None:
            self._last = self.loop.create_task(last())

        self.post(begin)
        if not self._wait_for(done, 2 * CLOSE_SECONDS):
            work.close()
            return False
        self._end()
        return True

    def _wait_for(self, done: threading.Event, seconds: float) -> bool:
        return done.wait(seconds)

    def _end(self) -> None:
        self.post(self.loop.stop)
        self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()


class _ClockLoop(asyncio.SelectorEventLoop):
    """A loop whose time is that of a clock."""

    def __init__(self, clock: Callable[[], float], selector: selectors.BaseSelector) -> None:
        self._time_now = clock
        super().__init__(selector)

    def time(self) -> float:
        """Return the clock's time."""
        return self._time_now()


class SteppedLoop(EventLoop):
    """A loop that runs while its owner waits for a step, on the owner's clock.

    So the order of events depends on nothing but that clock, unless coroutines use sockets: these
    are waited for in real time, as long as the clock has advanced.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._stepped_at = clock()
        self._may_step, self._stepped = threading.Semaphore(0), threading.Semaphore(0)
        self._is_ended = False
        super().__init__()

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return _ClockLoop(self._clock, self._selector)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            self._may_step.acquire()
            if self._is_ended:
                return
            self._wait_for_sockets()
            for _ in range(STEP_ROUNDS):
                self.loop.call_soon(self.loop.stop)
                self.loop.run_forever()
            self._stepped.release()

    def _wait_for_sockets(self) -> None:
        now = self._clock()
        passed, self._stepped_at = now - self._stepped_at, now
        if passed > 0 and len(self._selector.get_map()) > 1:  # One is the loop's own.
            self._selector.select(passed)

    def step(self, blocked: Callable[[float], None]) -> None:
        """Run what is ready, and wait until it has run.

        Args:
            blocked: called once a second while that takes longer; may raise.
        """
        self._may_step.release()
        seconds = 0.0
        while not self._stepped.acquire(timeout=BLOCKED_SECONDS):
            seconds += BLOCKED_SECONDS
            blocked(seconds)

    def blocked_seconds(self) -> float:
        """Return 0: a step waits for the loop."""
        return 0.0

    def _wait_for(self, done: threading.Event, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not done.is_set() and time.monotonic() < until:
            self._may_step.release()
            if not self._stepped.acquire(timeout=seconds):
                return False
        return done.is_set()

    def _end(self) -> None:
        self._is_ended = True
        self._may_step.release()
        self._thread.join(CLOSE_SECONDS)
        self.loop.close()
