"""Threads for calls that may never return.

`rd_kafka_send_offsets_to_transaction` waits without a deadline, and forever if the group's
coordinator left the cluster meanwhile (librdkafka #5456, #5511). Python cannot interrupt a thread
inside C. So such calls run on daemon threads that the caller can abandon: they do not keep the
process alive, and are replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

STEP_SECONDS = 0.1

Item = TypeVar("Item")
Result = TypeVar("Result")


def _never(item: object, waited_seconds: float) -> bool:
    return False


class Hung:
    """Result of a call that did not return in time."""


HUNG = Hung()


class CallThreads:
    """A bounded number of daemon threads that make calls at the same time.

    Several threads may use it.

    Args:
        most: the number of threads, without the abandoned ones.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._threads = 0
        self._counting = threading.Lock()

    def each(
        self,
        step: Callable[[Item], Result],
        items: Sequence[Item],
        seconds: float | None = None,
        *,
        is_stalled: Callable[[Item, float], bool] = _never,
    ) -> list[Result | Hung]:
        """Run `step` for all items at once and return the results in order.

        Args:
            step: returns its errors; an exception that it raises is raised here.
            items: one call each.
            seconds: for all of them; a call that has not returned by then is `HUNG`. None: no
                limit.
            is_stalled: receives the item of a pending call and the seconds that all of them have
                been waited for; if it returns True the call is `HUNG` at once.
        """
        jobs = [_Job(step, item) for item in items]
        with self._counting:
            for _ in range(min(self._most, len(jobs)) - self._threads):
                self._start()
                self._threads += 1
        for job in jobs:
            self._jobs.put(job)
        patience = _Patience(seconds)
        return [
            self._result(job, patience, partial(is_stalled, item))
            for job, item in zip(jobs, items, strict=True)
        ]

    def stop(self) -> None:
        """Let the threads end; an abandoned one ends with its call."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _result(
        self, job: _Job[Result], patience: _Patience, is_stalled: Callable[[float], bool]
    ) -> Result | Hung:
        if not patience.wait_for(job.done, is_stalled) and job.abandon():
            self._start()  # in its place
            return HUNG
        if job.error is not None:
            raise job.error
        return job.results[0]

    def _start(self) -> None:
        threading.Thread(target=self._work, name="eos-calls", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            # `abandon` precedes `done` or comes too late, so the flag no longer changes here.
            if job.is_abandoned:
                return  # another thread has replaced this one


class _Patience:
    """Waits for a number of seconds in which this process runs.

    It counts steps instead of reading the clock. In a process that was suspended every deadline is
    over when it resumes, although its calls have had no time to return.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._steps = 0

    def wait_for(self, event: threading.Event, is_stalled: Callable[[float], bool]) -> bool:
        while not event.wait(STEP_SECONDS):
            self._steps += 1
            waited_seconds = self._steps * STEP_SECONDS
            if self._seconds is not None and waited_seconds > self._seconds:
                return False
            if is_stalled(waited_seconds):
                return False
        return True


class _Job(Generic[Result]):
    def __init__(self, step: Callable[[Any], Result], item: object) -> None:
        self._step = step
        self._item = item
        self._ending = threading.Lock()
        self.done = threading.Event()
        self.is_abandoned = False
        self.results: list[Result] = []
        self.error: BaseException | None = None

    def abandon(self) -> bool:
        """Abandon this call; False: it has just returned."""
        # 1. the caller's patience ends  2. the call returns  3. the caller abandons it. The lock
        # decides: the call is either done, and its result counts, or abandoned, and its thread
        # ends with it; never both, or the pool would lose a thread.
        with self._ending:
            self.is_abandoned = not self.done.is_set()
        return self.is_abandoned

    def run(self) -> None:
        try:
            self.results.append(self._step(self._item))
        except BaseException as error:
            self.error = error
        finally:
            with self._ending:
                self.done.set()
