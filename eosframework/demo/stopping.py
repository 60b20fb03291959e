"""Ctrl-C and SIGTERM, noticed only between two steps.

librdkafka loses an exception that a signal handler raises while it serves callbacks.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Records a request to stop."""

    def __init__(self) -> None:
        self._asked = False

    @contextmanager
    def watched(self) -> Generator[None]:
        """Record SIGINT and SIGTERM during the block."""

        def ask(number: int, frame: FrameType | None) -> None:
            self._asked = True

        before = [signal.signal(number, ask) for number in _NUMBERS]
        try:
            yield
        finally:
            for number, handler in zip(_NUMBERS, before, strict=True):
                signal.signal(number, handler)

    def check(self) -> None:
        """Return if no request to stop came.

        Raises:
            KeyboardInterrupt: one came.
        """
        if self._asked:
            raise KeyboardInterrupt
