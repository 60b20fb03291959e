"""Ctrl-C in one-shot commands: exit code 130, and one line that says what was changed.

    most commands       SIGINT ends the process at once, as safe as being killed
    some commands       clean up first (`cleaning_up`): SIGINT raises KeyboardInterrupt
    long-running ones   see `signals`: stopping on request is a success, exit code 0

Python's default, a KeyboardInterrupt at any point, waits for threads that wait for a broker, and
is printed and lost in a callback of the import system.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

EXIT_CODE = 130
"""128 plus the number of SIGINT, as in shells."""

_LASTING = frozenset({"run-worker", "relay-outbox"})
_ONCE = frozenset({("relay-outbox", "plan"), ("relay-outbox", "reconcile")})

NOTHING = "nothing was changed"
"""The line's end for commands that only read, and for those that have not changed anything yet."""

_state = {"left": NOTHING}


def is_long_running(arguments: Sequence[str]) -> bool:
    """Return whether a command line runs until it is asked to stop.

    Args:
        arguments: without the program's name; one without a command prints help.
    """
    if not arguments or "--watch" in arguments:
        return True
    return arguments[0] in _LASTING and tuple(arguments[:2]) not in _ONCE


def note_remains(left: str) -> None:
    """Set the end of the line that an interruption shows, before the command changes something.

    Args:
        left: the changes that remain, and the next step.
    """
    _state["left"] = left


def line() -> str:
    """Return the line that an interrupted command shows."""
    return f"interrupted; {_state['left']}"


def cleaning_up() -> None:
    """Raise KeyboardInterrupt on SIGINT from now on, in a command that has to clean up."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ended_at_once(arguments: Sequence[str]) -> Generator[None]:
    """End this process on SIGINT with `line` and `EXIT_CODE` during the block."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        with suppress(OSError):
            os.write(2, f"{chr(10) if os.isatty(2) else ''}error: {line()}\n".encode())
        if "--json" in arguments:
            with suppress(OSError):
                os.write(1, json.dumps({"error": line()}).encode() + b"\n")
        os._exit(EXIT_CODE)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
