"""A child process for values that could end or stop the process that decodes them.

A decoder in C holds the interpreter's lock and checks neither depth nor counts: a value that is
nested deeply overflows the stack, and one with many items takes all time and memory. In the child
that ends the child, and the value is an error here.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eosframework.serialization.bounds import DECODED_BYTES, DECODING_BYTES, DECODING_SECONDS

PROGRAM = Path(__file__).with_name("decoding_child.py")

WAIT_SECONDS = 5.0 * DECODING_SECONDS.value
"""For an answer: the kernel ends the child by its CPU time, which a busy machine gives it later."""

START_SECONDS = 30.0
"""The same for the first answer of a child, which has to start."""


class ChildDecoder:
    """Decodes values in a child process; it starts with the first, and after each that ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = _nothing
        self._lock = threading.Lock()

    def decode(
        self,
        writer: str,
        named: Mapping[str, str],
        reader: str | None,
        data: bytes,
        has_choice: bool = False,
    ) -> Any:
        """Return the value of an encoding.

        Args:
            writer: text of the schema that it was written with.
            named: texts of the schemas that the writer's refers to, by name.
            reader: text of the schema to read it with; None: the writer's.
            data: the encoding.
            has_choice: return a record in a union as its name and its members.

        Raises:
            ValueError: it cannot be decoded, or not within the bounds.
        """
        request = pickle.dumps((writer, dict(named), reader, data, has_choice))
        with self._lock:
            try:
                value, error = self._exchange(request)
            except BaseException:  # Also what interrupts a record: the answer would be the next's.
                self.close()
                raise
        if error is not None:
            raise ValueError(error)
        return value

    def close(self) -> None:
        """End the child, if there is one."""
        self._process = None
        self._end()

    def _exchange(self, request: bytes) -> tuple[Any, str | None]:
        seconds = WAIT_SECONDS
        if self._process is None:
            seconds = START_SECONDS
            limits = (str(DECODING_SECONDS.value), str(DECODING_BYTES.value))
            # Isolated: no variable and no module of a user takes part. A session of its own: Ctrl-C
            # ends this process, and with its stdin the child.
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(PROGRAM), *limits],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._end = weakref.finalize(self, _kill, self._process)
        process = self._process
        assert process.stdin is not None
        try:
            process.stdin.write(struct.pack(">I", len(request)) + request)
            process.stdin.flush()
            deadline = time.monotonic() + seconds
            [length] = struct.unpack(">I", self._read(process, 4, deadline))
            if length > DECODED_BYTES.value:
                raise ValueError(
                    f"the value has {length} bytes once it is decoded, expected at most "
                    f"{DECODED_BYTES.value}"
                )
            return pickle.loads(self._read(process, length, deadline))
        except (OSError, EOFError):
            code = process.wait(START_SECONDS)
            if code == -signal.SIGXCPU:
                raise ValueError(_too_long()) from None
            raise ValueError(
                f"the value ended the process that decoded it ({code}): it is nested too deeply, "
                f"or has more items than {DECODING_BYTES.value} bytes hold"
            ) from None

    def _read(self, process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes:
        assert process.stdout is not None
        waiting = select.poll()
        waiting.register(process.stdout, select.POLLIN)
        parts: list[bytes] = []
        while size:
            if not waiting.poll(max(deadline - time.monotonic(), 0) * 1000):
                raise ValueError(_too_long())
            part = os.read(process.stdout.fileno(), size)
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _too_long() -> str:
    return f"the value is not decoded after {DECODING_SECONDS.value} {DECODING_SECONDS.unit}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def _nothing() -> None:
    return
