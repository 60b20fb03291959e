"""The C allocator's memory: how much is in use and how much is kept, and less of the latter.

glibc keeps freed memory in up to eight arenas per processor. Each of them shrinks only once the
free memory at its end exceeds a threshold, and each freed block that is large raises the threshold,
up to 64 MB. A worker allocates in the threads of its Kafka clients and frees in another, so its
resident memory rises for hours: of 207 MB, 40 were in use and 90 were free blocks (measured).

    keep_little       fewer arenas and fixed thresholds, from the start of the process
    returned_memory   returns the free pages between blocks that are in use, in intervals

Only processes of the command line do this: in a program that embeds a worker the allocator belongs
to the program.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

ARENAS = 4
"""Threads take turns in them; small blocks come from each thread's own cache."""

MMAP_BYTES = 8 * 2**20
"""Larger blocks return to the system when they are freed. A fetched response, up to 1 MB for each
partition, should stay below: at 128 KiB a worker took 163,000 page faults for a million records
instead of 27,000 (measured), and at times 1.2 times the processor time."""

TRIM_BYTES = 16 * 2**20
"""More free memory than that at the end of an arena returns at once. Once either threshold is set,
glibc raises neither."""

_OPTIONS = (
    (-8, ARENAS, "MALLOC_ARENA_MAX", "glibc.malloc.arena_max"),
    (-3, MMAP_BYTES, "MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold"),
    (-1, TRIM_BYTES, "MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold"),
)
"""Parameters of mallopt(3) by their numbers in malloc.h, and what sets them from outside."""

TRIM_SECONDS = 60.0
"""Interval between two looks. A return took 30 ms, 159 on a machine with a load of 40."""

KEPT_BYTES = 16 * 2**20
"""Free memory that stays with the allocator: below, nothing is returned."""

_FIELDS = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


class _MallInfo2(ctypes.Structure):
    """`struct mallinfo2` of malloc.h, since glibc 2.33."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


class Heap(NamedTuple):
    """Memory of the allocator, all arenas together.

    Args:
        used_bytes: in blocks that the program has not freed, large ones included.
        kept_bytes: in freed blocks; resident, except for pages that were returned.
    """

    used_bytes: int
    kept_bytes: int


def heap() -> Heap | None:
    """Return the allocator's memory; None: this C library does not report it."""
    if _mallinfo2 is None:
        return None
    found = _mallinfo2()
    return Heap(found.uordblks + found.hblkhd, found.fordblks)


def keep_little(environment: Mapping[str, str] = os.environ) -> None:
    """Make the allocator keep little freed memory; before the process starts threads.

    Args:
        environment: variables of the process; what they set is left alone.
    """
    if _mallopt is None:
        return
    tunables = environment.get("GLIBC_TUNABLES", "")
    for parameter, value, variable, tunable in _OPTIONS:
        if variable not in environment and tunable not in tunables:
            _mallopt(parameter, value)


def return_memory() -> bool:
    """Return free pages to the operating system; False: this C library cannot."""
    # Called without the GIL. An arena is locked while its pages are returned.
    return _malloc_trim is not None and bool(_malloc_trim(0))


@contextmanager
def returned_memory(seconds: float = TRIM_SECONDS) -> Generator[None]:
    """Return the allocator's free memory in intervals during the block, on a thread."""
    if _malloc_trim is None:
        yield
        return
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            found = heap()
            if found is None or found.kept_bytes >= KEPT_BYTES:
                return_memory()

    threading.Thread(target=run, name="eos-allocator", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _function(name: str, returned: type, *taken: type) -> Callable[..., Any] | None:
    try:
        found = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
    found.restype, found.argtypes = returned, taken
    return found


_mallinfo2 = _function("mallinfo2", _MallInfo2)
_mallopt = _function("mallopt", ctypes.c_int, ctypes.c_int, ctypes.c_int)
_malloc_trim = _function("malloc_trim", ctypes.c_int, ctypes.c_size_t)
