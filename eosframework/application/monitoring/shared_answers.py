"""Answers of brokers that many threads use: asked for on one thread, only when one is needed.

Each thread that sends admin requests has clients of its own, with threads and connections. So the
threads of the HTTP server leave the requests to a single one, and wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

import structlog

from eosframework.errors import ClusterUnreachable, EosError

Answer = TypeVar("Answer")
Job = Callable[[], None]


class AskingThread:
    """A daemon thread that runs jobs one after the other; it begins with the first one."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_started = False

    def run(self, job: Job) -> None:
        """Run a job on the thread; returns at once."""
        with self._lock:
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._serve, name="eos-owners", daemon=True).start()
        self._jobs.put(job)

    def stop(self) -> None:
        """End the thread after the jobs before this call; waits for none of them."""
        self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class SharedAnswer(Generic[Answer]):
    """The latest answer to one question.

    Args:
        ask: returns it, on the thread of `run`.
        run: runs a function on the asking thread.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        ask: Callable[[], Answer],
        run: Callable[[Job], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._run = run
        self._clock = clock
        self._changed = threading.Condition()
        self._latest: tuple[float, Answer] | None = None
        self._failed: tuple[float, EosError] | None = None
        self._is_asking = False

    def since(self, moment: float, timeout_seconds: float) -> Answer:
        """Return an answer to a request that was sent at `moment` or later.

        Threads that wait at the same time share a request.

        Args:
            moment: by the clock.
            timeout_seconds: longest wait.

        Raises:
            ClusterUnreachable: there was no answer in that time.
            EosError: the request failed.
        """
        deadline = self._clock() + timeout_seconds
        with self._changed:
            while True:
                if self._latest is not None and self._latest[0] >= moment:
                    return self._latest[1]
                if self._failed is not None and self._failed[0] >= moment:
                    raise self._failed[1]
                if not self._is_asking:
                    self._is_asking = True
                    self._run(self._renew)
                    continue
                left = deadline - self._clock()
                if left <= 0 or not self._changed.wait(left):
                    raise ClusterUnreachable(f"the brokers gave no answer in {timeout_seconds:g} s")

    def _renew(self) -> None:
        at = self._clock()
        latest, failed = self._latest, self._failed
        try:
            latest = at, self._ask()
        except EosError as error:
            failed = at, error
        except Exception as error:
            structlog.get_logger("eosframework.http").exception("owners_failed")
            failed = at, ClusterUnreachable(f"{type(error).__name__}: {error}")
        with self._changed:
            self._latest, self._failed, self._is_asking = latest, failed, False
            self._changed.notify_all()
