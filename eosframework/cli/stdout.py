"""The stdout of a command: an error of its own if it fails, and JSON objects on it.

Python reports a stdout that fails only at exit (with code 120), or as an OSError that looks like
one of any file.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from eosframework.errors import OutputLost
from eosframework.process.terminal import escaped, unescaped

_STDOUT = 1


def print_json(report: dict[str, Any]) -> None:
    """Print the one JSON object of a command with `--json`."""
    import orjson

    print(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())


def print_report(report: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print a command's result: one JSON object, or text."""
    if as_json:
        print_json(report)
    else:
        print(text)


@contextmanager
def guarded_stdout() -> Generator[None]:
    """Make `print` in the block raise OutputLost if the process's stdout fails.

    A stdout that was replaced, for example by pytest, is left alone.
    """
    own = sys.stdout
    if own is None or unescaped(own) is not sys.__stdout__:
        yield
        return
    own.flush()
    guarded = io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(_STDOUT, "wb", closefd=False)),
        encoding=own.encoding,
        errors=own.errors,
        line_buffering=bool(own.line_buffering),
    )
    sys.stdout = escaped(guarded)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = own


class _Descriptor(io.FileIO):
    def write(self, data: Any, /) -> int | None:
        try:
            return super().write(data)
        except OSError as error:
            # Python's buffers still hold output, and flush it at exit.
            _discard_the_rest()
            raise OutputLost(_message(error)) from error


def _discard_the_rest() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDOUT)
    os.close(nowhere)


def _message(error: OSError) -> str:
    if error.errno == errno.EPIPE:
        return (
            "stdout was closed before everything was printed; the command ended there. Read all of "
            "its output, or write it to a file"
        )
    return (
        f"stdout could not be written ({error.strerror}); the command ended there. Free disk space "
        f"or write to another file, and run it again"
    )
