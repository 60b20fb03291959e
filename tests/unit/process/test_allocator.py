"""Freed memory returns to the system; what the environment sets is left alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from eosframework.process import allocator
from eosframework.process.allocator import keep_little

pytestmark = pytest.mark.skipif(allocator._mallopt is None, reason="this C library is not glibc")

LARGE_BYTES = 8_000_000

PROGRAM = f"""
import ctypes
from eosframework.process.allocator import keep_little
from tests.support.faults.heap_report import own_heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
if {{little}}:
    keep_little()
for _ in range(3):
    block = libc.malloc({LARGE_BYTES})
    ctypes.memset(block, 1, {LARGE_BYTES})
    libc.free(block)
print(own_heap().kept_bytes)
"""


def kept_after_large_blocks(*, little: bool) -> int:
    """Return what a process keeps that has freed large blocks."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(little=little)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return int(done.stdout)


def test_a_large_block_that_is_freed_is_not_kept_for_the_next_one() -> None:
    """Without it glibc raises its thresholds, and the second block stays in an arena."""
    assert kept_after_large_blocks(little=False) > 0.9 * LARGE_BYTES
    assert kept_after_large_blocks(little=True) < 0.1 * LARGE_BYTES


def test_what_the_environment_sets_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(allocator, "_mallopt", lambda parameter, _: called.append(parameter))
    keep_little({"MALLOC_ARENA_MAX": "8", "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"})
    assert called == [-3]
    keep_little({})
    assert called == [-3, -8, -3, -1]


def test_a_c_library_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_mallopt", None)
    keep_little({})
