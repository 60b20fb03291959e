"""The stdout of a command, whose failure is an error with a name wherever something is printed.

Python's own reports it late (at exit, with code 120), or as an OSError that looks like that of any
file.
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

_STDOUT = 1


@contextmanager
def guarded_stdout() -> Generator[None]:
    """Let what is printed in the block raise OutputLost where the process's stdout fails.

    A stdout that somebody put in its place, such as a test, is left alone.
    """
    own = sys.stdout
    if own is not sys.__stdout__ or own is None:
        yield
        return
    own.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(_STDOUT, "wb", closefd=False)),
        encoding=own.encoding,
        errors=own.errors,
        line_buffering=bool(own.line_buffering),
    )
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
            # Buffers hold the rest, and flush it at exit.
            _discard_the_rest()
            raise OutputLost(_message(error)) from error


def _discard_the_rest() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDOUT)
    os.close(nowhere)


def _message(error: OSError) -> str:
    if error.errno == errno.EPIPE:
        return (
            "stdout was closed before everything was printed; the command ended there. Let its "
            "reader read to the end, or write to a file"
        )
    return (
        f"stdout did not take what the command prints ({error.strerror}); the command ended there. "
        f"Make room or write elsewhere, and run it again"
    )
