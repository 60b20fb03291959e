"""Settings of the C allocator, so that a process keeps little freed memory.

glibc keeps freed memory in up to eight arenas per processor. Each shrinks only once the free memory
at its end exceeds a threshold, and each freed block that is large raises the threshold, up to 64
MB. A worker allocates in the threads of its Kafka clients and frees in another, so its resident
memory rises for hours although the memory in use does not (measured with mallinfo2 in the process).

Only processes of the command line set this: in a program that embeds a worker the allocator belongs
to the program.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping

ARENAS = 2
"""Threads take turns in them; small blocks come from each thread's own cache."""

THRESHOLD_BYTES = 128 * 1024
"""Larger blocks return to the system when they are freed; so does more than that at the end of an
arena. These are the first values of glibc; once they are set, it does not raise them."""

_OPTIONS = (
    (-8, ARENAS, "MALLOC_ARENA_MAX", "glibc.malloc.arena_max"),
    (-3, THRESHOLD_BYTES, "MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold"),
    (-1, THRESHOLD_BYTES, "MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold"),
)
"""Parameters of mallopt(3) by their numbers in malloc.h, and what sets them from outside."""


def keep_little(environment: Mapping[str, str] = os.environ) -> None:
    """Make the allocator keep little freed memory; before the process starts threads.

    Another C library than glibc is left as it is.

    Args:
        environment: variables of the process; what they set is left alone.
    """
    if _mallopt is None:
        return
    tunables = environment.get("GLIBC_TUNABLES", "")
    for parameter, value, variable, tunable in _OPTIONS:
        if variable not in environment and tunable not in tunables:
            _mallopt(parameter, value)


def _found() -> Callable[[int, int], int] | None:
    try:
        found = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return None
    found.restype, found.argtypes = ctypes.c_int, (ctypes.c_int, ctypes.c_int)
    return found


_mallopt = _found()
