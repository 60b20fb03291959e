"""A worker's reports of its own heap, for a process that watches it."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

REPORT_SECONDS = 2.0


class HeapReport(NamedTuple):
    """A process's own figures of its memory.

    Args:
        used_bytes: of the C allocator, in blocks that are in use, large ones included.
        kept_bytes: of the C allocator, in freed blocks.
        python_blocks: allocated by Python's own allocator.
    """

    used_bytes: int = 0
    kept_bytes: int = 0
    python_blocks: int = 0


class _MallInfo2(ctypes.Structure):
    """`struct mallinfo2` of malloc.h, since glibc 2.33."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
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
    ]


def own_heap() -> HeapReport:
    """Return this process's figures, of all arenas together."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallInfo2
    found = mallinfo2()
    used_bytes = found.uordblks + found.hblkhd
    return HeapReport(used_bytes, found.fordblks, sys.getallocatedblocks())


def read_report(directory: Path, pid: int) -> HeapReport:
    """Return a process's newest report; zeros: it has made none."""
    try:
        return HeapReport(*map(int, (directory / str(pid)).read_text().split()))
    except FileNotFoundError:
        return HeapReport()


def report_heap(directory: Path) -> None:
    """Report every few seconds, on a thread, until this process ends."""
    directory.mkdir(parents=True, exist_ok=True)

    def run() -> None:
        own, new = directory / str(os.getpid()), directory / f"{os.getpid()}.new"
        while True:
            new.write_text(" ".join(map(str, own_heap())))
            new.rename(own)
            time.sleep(REPORT_SECONDS)

    threading.Thread(target=run, name="heap-report", daemon=True).start()
