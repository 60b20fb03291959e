"""Ctrl-C from the first moment of a command on: one line at most, and an exit code.

    most commands       SIGINT ends the process at once, as safe as being killed: 130, and one line
                        that says what was changed
    some commands       the same until they start something that they have to clean up
                        (`cleaning_up`); from then on SIGINT raises KeyboardInterrupt
    long-running ones   see `signals`: stopping on request is a success, exit code 0

Python's default, a KeyboardInterrupt at any point, waits for threads that wait for a broker, and
is printed and lost in a callback of the import system. It holds until `end_on_interrupt`, so this
module imports only what the interpreter has loaded already: `signal` alone imports `enum`, and a
tenth of all interruptions within the first second came before such imports were done. While the
interpreter itself starts, no package can handle a signal.
"""

import os
import sys

TYPE_CHECKING = False  # `typing` would be imported for it.
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Sequence
    from types import FrameType
    from typing import NoReturn
else:
    import _signal  # The C module of `signal`, see above.

EXIT_CODE = 130
"""128 plus the number of SIGINT, as in shells."""

_LASTING = frozenset({"run-worker", "relay-outbox", "console"})
_ONCE = frozenset({("relay-outbox", "plan"), ("relay-outbox", "reconcile")})

NOTHING = "nothing was changed"
"""The line's end for commands that only read, and for those that have not changed anything yet."""

_state = {"left": NOTHING, "json": f'"interrupted; {NOTHING}"'}


def is_long_running(arguments: "Sequence[str]") -> bool:
    """Return whether a command line runs until it is asked to stop.

    Args:
        arguments: without the program's name; one without a command prints help.
    """
    if not arguments or "--watch" in arguments:
        return True
    return arguments[0] in _LASTING and tuple(arguments[:2]) not in _ONCE


def end_on_interrupt(arguments: "Sequence[str]") -> None:
    """End this process on SIGINT from now on, until the command sets another handler.

    A long-running command ends on SIGTERM, too, with exit code 0. Process 1 of a container handles
    SIGTERM in any case: the kernel applies no default action to it.
    """
    if is_long_running(arguments):
        _signal.signal(_signal.SIGINT, _stop)
        _signal.signal(_signal.SIGTERM, _stop)
        return
    _signal.signal(_signal.SIGINT, _interrupt)
    if os.getpid() == 1:
        _signal.signal(_signal.SIGTERM, _exit)


def note_remains(left: str) -> None:
    """Set the end of the line that an interruption shows, before the command changes something.

    Args:
        left: the changes that remain, and the next step.
    """
    import json

    _state["left"], _state["json"] = left, json.dumps(f"interrupted; {left}")


def line() -> str:
    """Return the line that an interrupted command shows."""
    return f"interrupted; {_state['left']}"


def cleaning_up() -> None:
    """Raise KeyboardInterrupt on SIGINT from now on, in a command that has to clean up.

    To be called after imports, which may lose a KeyboardInterrupt.
    """
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _interrupt(_number: int, _frame: "FrameType | None") -> "NoReturn":
    # A handler that imports could find half of a module, if the signal came during its import.
    _write(2, f"{chr(10) if os.isatty(2) else ''}error: {line()}\n")
    if "--json" in sys.argv:
        _write(1, f'{{"error": {_state["json"]}}}\n')
    os._exit(EXIT_CODE)


def _stop(_number: int, _frame: "FrameType | None") -> "NoReturn":
    os._exit(0)


def _exit(_number: int, _frame: "FrameType | None") -> "NoReturn":
    sys.exit(0)


def _write(descriptor: int, text: str) -> None:
    try:  # noqa: SIM105  (contextlib is not imported here)
        os.write(descriptor, text.encode())
    except OSError:
        pass
