"""Memory of the process: its allocator, garbage collection, and the limit of its container.

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
import gc
import os
import resource
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
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


ROOT = Path("/")


def free_bytes(root: Path = ROOT) -> int | None:
    """Return the least of what each limit leaves; None: this system reports none.

    Page cache counts as free: the kernel reclaims it before it refuses memory or kills a process.

    Args:
        root: of the file systems /proc and /sys.
    """
    left = [*_of_machine(root), *_of_container(root), *_of_process(root)]
    return max(min(left), 0) if left else None


def _of_machine(root: Path) -> Iterator[int]:
    if (found := _numbers(root / "proc/meminfo").get("MemAvailable:")) is not None:
        yield found * 1024


def _of_container(root: Path) -> Iterator[int]:
    """Yield what cgroups of version 2 leave, this process's own and those above it."""
    with suppress(OSError, ValueError):
        line = (root / "proc/self/cgroup").read_text().splitlines()[-1]
        top = root / "sys/fs/cgroup"
        group = top / line.partition("::")[2].lstrip("/")
        # In a container its own cgroup is mounted as the top.
        for directory in {top, group, *group.parents}:
            if directory.is_relative_to(top):
                yield from _of_cgroup(directory)


def _of_cgroup(directory: Path) -> Iterator[int]:
    with suppress(OSError, ValueError):
        limit = (directory / "memory.max").read_text().strip()
        if limit != "max":
            used = int((directory / "memory.current").read_text())
            cache = _numbers(directory / "memory.stat").get("file", 0)
            yield int(limit) - used + cache


def _of_process(root: Path) -> Iterator[int]:
    """Yield what RLIMIT_DATA (`ulimit -d`) leaves; it counts the stacks of threads as a whole."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    used = _numbers(root / "proc/self/status").get("VmData:")
    if limit != resource.RLIM_INFINITY and used is not None:
        yield limit - used * 1024


def _numbers(path: Path) -> dict[str, int]:
    """Return the lines of a file that begin with a name and a number."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {found[0]: int(found[1]) for found in words if len(found) > 1 and found[1].isdigit()}


THRESHOLDS = (50_000, 20, 50)


def collect_rarely() -> None:
    """Run the garbage collector at every 50,000th object instead of every 700th.

    Imports keep almost all that they allocate, and collections were an eighth to a quarter of their
    time. A batch allocates thousands of tuples and messages, which their reference counts free:
    collections took 3 to 7% of a worker's main thread. Cycles of users' functions are collected.
    """
    gc.set_threshold(*THRESHOLDS)


def exclude_what_is_there() -> None:
    """Exclude all objects so far from collections: a start leaves about a hundred in cycles."""
    collect_rarely()
    gc.freeze()
