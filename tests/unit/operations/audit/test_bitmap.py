"""Sets of numbers at a bit each behave as sets do."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eosframework.operations.audit.bitmap import Bitmap, Bytemap

NUMBERS = st.sets(st.integers(0, 300) | st.integers(65_500, 65_600) | st.integers(131_000, 131_100))


@given(NUMBERS, st.integers(0, 132_000), st.integers(0, 132_000))
def test_a_bitmap_holds_and_misses_what_a_set_does(members: set[int], one: int, two: int) -> None:
    start, stop = sorted((one, two))
    bitmap = Bitmap()
    assert all(bitmap.add(n) for n in members)
    assert not any(bitmap.add(n) for n in members)
    assert all(n in bitmap for n in members)
    runs = list(bitmap.missing(start, stop))
    inside = sorted(n for n in members if start <= n < stop)
    assert bitmap.count(start, stop) == len(inside)
    assert bitmap.first(start, stop) == (inside[0] if inside else stop)
    assert all(a < b for a, b in runs)
    assert all(b < c for (_, b), (c, _) in pairwise(runs))
    assert sum(b - a for a, b in runs) == stop - start - len(inside)
    assert not any(a <= n < b for a, b in runs for n in inside)


def test_full_pages_are_skipped() -> None:
    bitmap = Bitmap()
    for n in range(200_000):
        bitmap.add(n)
    assert list(bitmap.missing(0, 200_001)) == [(200_000, 200_001)]


def test_a_bytemap_keeps_the_lowest_byte() -> None:
    bytes_ = Bytemap()
    bytes_.put(70_000, 0x1FF)
    assert (bytes_[70_000], bytes_[5]) == (255, 0)
