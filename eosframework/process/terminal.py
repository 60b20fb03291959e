"""Output of the process, in which control characters of data appear as escapes.

A record, a key or the text of an error may hold the characters with which a terminal is controlled:
they change its title, move the cursor over earlier lines, or make it send input as a keyboard does.
`escape_output` puts an `EscapedStream` in front of stdout and stderr, through which every command
prints. Code that draws writes to its target (`unescaped`), and escapes data itself: a
`TerminalConsole`, and the log on a terminal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    r"""Return a text with `\u001b` and the like for control characters, except tabs and newlines.

    The form is that of JSON, so JSON stays valid.
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class EscapedStream:
    """A text stream that escapes what is written to it.

    It has no `buffer`: text written there would not be escaped.
    """

    def __init__(self, target: TextIO) -> None:
        self.target = target

    def write(self, text: str) -> int:
        """Write a text, escaped."""
        self.target.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.target, name)


def escaped(stream: TextIO) -> TextIO:
    """Return a stream that escapes what is written to it."""
    return stream if isinstance(stream, EscapedStream) else cast("TextIO", EscapedStream(stream))


def unescaped(stream: TextIO) -> TextIO:
    """Return the target of an `EscapedStream`; another stream itself."""
    return stream.target if isinstance(stream, EscapedStream) else stream


def escape_output() -> None:
    """Escape what this process prints from now on; it stays so, for the traceback at its end."""
    if sys.stdout is not None:
        sys.stdout = escaped(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = escaped(sys.stderr)
