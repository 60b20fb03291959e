"""Memory that the C allocator keeps is returned; what the environment sets is left alone."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

from eosframework.process import memory as allocator
from eosframework.process.memory import KEPT_BYTES, heap, keep_little, return_memory

pytestmark = pytest.mark.skipif(heap() is None, reason="this C library reports no heap")

FREED_BYTES = 4 * KEPT_BYTES

PROGRAM = f"""
import ctypes, json, threading, time
from pathlib import Path
from eosframework.process import memory as allocator

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)

def leave_holes():
    # One block in ten stays in use, so that no end of an arena is free.
    size = 20_000
    blocks = [libc.malloc(size) for _ in range({FREED_BYTES} // size)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for number, block in enumerate(blocks):
        if number % 10:
            libc.free(block)

if {{little}}:
    allocator.keep_little()
thread = threading.Thread(target=leave_holes)
thread.start()
thread.join()
before, kept = resident(), allocator.heap().kept_bytes
with allocator.returned_memory({{seconds}}):
    time.sleep(1)
print(json.dumps([before, kept, resident()]))
"""


def run(*, seconds: float, little: bool = False) -> tuple[int, int, int]:
    """Free most of many blocks; return resident and kept bytes before, and resident after."""
    program = PROGRAM.format(seconds=seconds, little=little)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    before, kept, after = json.loads(done.stdout)
    return before, kept, after


def test_free_pages_between_blocks_in_use_are_returned() -> None:
    before, kept, after = run(seconds=0.1)
    assert kept > 0.8 * FREED_BYTES
    assert before - after > 0.5 * FREED_BYTES


def test_they_stay_without_it() -> None:
    before, _, after = run(seconds=60)
    assert before - after < 0.1 * FREED_BYTES


def test_a_block_that_is_freed_does_not_let_arenas_keep_more() -> None:
    """After glibc has raised its thresholds, the same block comes from an arena and stays there."""
    assert kept_after_large_blocks(little=False) > 0.9 * LARGE_BYTES
    assert kept_after_large_blocks(little=True) < 0.1 * LARGE_BYTES


LARGE_BYTES = 30_000_000

LARGE = f"""
import ctypes
from eosframework.process import memory as allocator

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
if {{little}}:
    allocator.keep_little()
for _ in range(3):
    block = libc.malloc({LARGE_BYTES})
    ctypes.memset(block, 1, {LARGE_BYTES})
    libc.free(block)
print(allocator.heap().kept_bytes)
"""


def kept_after_large_blocks(*, little: bool) -> int:
    done = subprocess.run(
        [sys.executable, "-c", LARGE.format(little=little)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return int(done.stdout)


def test_what_the_environment_sets_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(allocator, "_mallopt", lambda parameter, _: called.append(parameter))
    keep_little({"MALLOC_ARENA_MAX": "8", "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"})
    assert called == [-3]
    keep_little({})
    assert called == [-3, -8, -3, -1]


def test_a_c_library_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_mallinfo2", "_mallopt", "_malloc_trim"):
        monkeypatch.setattr(allocator, name, None)
    keep_little({})
    assert heap() is None
    assert not return_memory()
    with allocator.returned_memory(0.0):
        pass
    assert allocator._function("no_such_function", ctypes.c_int) is None
