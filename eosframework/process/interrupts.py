"""Ctrl-C in a command that does one thing and ends: exit code 130, and one line about what it left.

    most commands       SIGINT ends the process at once; a process that is killed leaves no more
    some               clean up first (`cleaning_up`): SIGINT is a KeyboardInterrupt
    those that last    see `stopping`: to stop on request is no failure, so their exit code is 0

Python's own way, a KeyboardInterrupt everywhere, waits for threads that wait for a broker, and is
printed and lost in a callback of the import system.
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
"""128 and the number of SIGINT, as shells have it."""

_LASTING = frozenset({"run-worker", "relay-outbox"})
_ONCE = frozenset({("relay-outbox", "plan"), ("relay-outbox", "reconcile")})

NOTHING = "nothing was changed"
"""Left by a command that only looks, and by one that has not begun."""

_state = {"left": NOTHING}


def lasts(arguments: Sequence[str]) -> bool:
    """Tell whether a command line runs until it is asked to stop.

    Args:
        arguments: without the program's name; one without a command prints help.
    """
    if not arguments or "--watch" in arguments:
        return True
    return arguments[0] in _LASTING and tuple(arguments[:2]) not in _ONCE


def leaves(left: str) -> None:
    """Note what an interruption leaves from here on; the command is about to change something.

    Args:
        left: the end of the line that a user is shown, with what to do next.
    """
    _state["left"] = left


def line() -> str:
    """Return what a user whose command was interrupted is shown."""
    return f"interrupted; {_state['left']}"


def cleaning_up() -> None:
    """Let SIGINT be a KeyboardInterrupt from here on: the command has to clean up."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ended_at_once(arguments: Sequence[str]) -> Generator[None]:
    """Let SIGINT end this process with a line and `EXIT_CODE` for the length of the block."""

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
