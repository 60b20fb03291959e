"""Progress of a command's steps: what is done of a total, the rate, and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from eosframework.process.terminal import unescaped

OnProgress = Callable[[str, int, int], None]
"""Called with the name of a step, the number of records done so far, and their total; the total is
0 for a step that waits."""

_DRAW_SECONDS = 0.1


def ignore_progress(what: str, done: int, total: int) -> None:
    """Show nothing."""


class StepText:
    """The text of a step; a step begins where its name changes.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._what = ""
        self._began_at = 0.0

    def of(self, what: str, done: int, total: int) -> str:
        """Return the text; see `OnProgress`."""
        if what != self._what:
            self._what, self._began_at = what, self._clock()
        if total == 0:
            return what
        text = f"{what}: {done:,} of {total:,} records"
        seconds = self._clock() - self._began_at
        if not done or not seconds:
            return text
        rate = done / seconds
        return f"{text}  {rate:,.0f}/s  {(total - done) / rate:,.0f} s left"


@contextmanager
def step_line() -> Generator[OnProgress]:
    """Show steps in one line of a terminal during the block; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield ignore_progress
        return
    stream, text = unescaped(sys.stderr), StepText()
    due = 0.0

    def show(what: str, done: int, total: int) -> None:
        nonlocal due
        line = text.of(what, done, total)
        if time.monotonic() >= due:
            due = time.monotonic() + _DRAW_SECONDS
            stream.write(f"\r\x1b[K{line}")
            stream.flush()

    try:
        yield show
    finally:
        stream.write("\r\x1b[K")
        stream.flush()
