"""A worker's reports of its own heap, for a process that watches it."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from eosframework.process import memory as allocator

REPORT_SECONDS = 2.0


class HeapReport(NamedTuple):
    """A process's own figures of its memory.

    Args:
        used_bytes: of the C allocator, in blocks that are in use.
        kept_bytes: of the C allocator, in freed blocks.
        python_blocks: allocated by Python's own allocator, after a collection.
        trims: how often free memory was returned.
        longest_trim_ms: the longest of these.
    """

    used_bytes: int = 0
    kept_bytes: int = 0
    python_blocks: int = 0
    trims: int = 0
    longest_trim_ms: float = 0.0


def read_report(directory: Path, pid: int) -> HeapReport:
    """Return a process's newest report; zeros: it has made none."""
    try:
        used, kept, blocks, trims, longest = (directory / str(pid)).read_text().split()
    except FileNotFoundError:
        return HeapReport()
    return HeapReport(int(used), int(kept), int(blocks), int(trims), float(longest))


def report_heap(directory: Path) -> None:
    """Report every few seconds, on a thread, until this process ends."""
    directory.mkdir(parents=True, exist_ok=True)
    trims: list[float] = []
    trim = allocator.return_memory

    def timed_trim() -> bool:
        began = time.perf_counter()
        returned = trim()
        trims.append((time.perf_counter() - began) * 1000)
        return returned

    def run() -> None:
        own, new = directory / str(os.getpid()), directory / f"{os.getpid()}.new"
        while True:
            gc.collect()  # what waits for a collection would look like a leak
            found = allocator.heap()
            if found is not None:
                rest = (sys.getallocatedblocks(), len(trims), round(max(trims, default=0.0), 3))
                new.write_text(" ".join(map(str, (*found, *rest))))
                new.rename(own)
            time.sleep(REPORT_SECONDS)

    allocator.return_memory = timed_trim
    threading.Thread(target=run, name="heap-report", daemon=True).start()
