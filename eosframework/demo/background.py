"""Threads of a demo that run until they are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from eosframework.errors import EosError


class Background:
    """A group of threads that keeps the first error of any of them.

    Args:
        name: of the threads.
        loops: one for each thread; each returns soon after `stopping` is set.
    """

    def __init__(self, name: str, loops: Sequence[Callable[[], None]]) -> None:
        self.stopping = threading.Event()
        self.error: EosError | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=name, daemon=True)
            for loop in loops
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads."""
        self.stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def require_running(self) -> None:
        """Check that no thread has failed.

        Raises:
            EosError: the cause of a failure.
        """
        if self.error is not None:
            raise self.error

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except EosError as error:
            self.error = self.error or error
