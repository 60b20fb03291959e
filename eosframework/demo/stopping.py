"""Ctrl-C and SIGTERM, noticed between two steps and never inside one.

An exception out of a signal handler, raised while librdkafka serves callbacks, is lost there.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self._asked = False

    @contextmanager
    def watched(self) -> Generator[None]:
        """Take note of SIGINT and SIGTERM for the length of the block."""

        def ask(number: int, frame: FrameType | None) -> None:
            self._asked = True

        before = [signal.signal(number, ask) for number in _NUMBERS]
        try:
            yield
        finally:
            for number, handler in zip(_NUMBERS, before, strict=True):
                signal.signal(number, handler)

    def check(self) -> None:
        """Return if nobody asked to stop.

        Raises:
            KeyboardInterrupt: somebody did.
        """
        if self._asked:
            raise KeyboardInterrupt
