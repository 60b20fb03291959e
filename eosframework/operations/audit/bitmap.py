"""Sparse sets and maps of integers in pages: a bit, or a byte, for each number."""

from __future__ import annotations

from collections.abc import Iterator

_PAGE_BITS = 1 << 16
_FULL = bytearray(b"\xff") * (_PAGE_BITS // 8)


class Bitmap:
    """A set of numbers from 0; pages are allocated on first use."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def add(self, number: int) -> bool:
        """Add a number; return whether it is new."""
        page = self._pages.get(number >> 16)
        if page is None:
            page = self._pages[number >> 16] = bytearray(_PAGE_BITS // 8)
        place, bit = (number & 0xFFFF) >> 3, 1 << (number & 7)
        if page[place] & bit:
            return False
        page[place] |= bit
        return True

    def __contains__(self, number: int) -> bool:
        page = self._pages.get(number >> 16)
        return page is not None and bool(page[(number & 0xFFFF) >> 3] & (1 << (number & 7)))

    def count(self, start: int, stop: int) -> int:
        """Return how many numbers from `start` to before `stop` are in the set."""
        return (stop - start) - sum(end - first for first, end in self.missing(start, stop))

    def first(self, start: int, stop: int) -> int:
        """Return the lowest number of the set from `start` on; `stop` if there is none."""
        for began, end in self.missing(start, stop):
            return start if began > start else end
        return start

    def missing(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the runs of missing numbers, as the first one and the one after the last."""
        began: int | None = None
        number = start
        while number < stop:
            page = self._pages.get(number >> 16)
            next_page = min(((number >> 16) + 1) << 16, stop)
            if page is None or page == _FULL:
                skip, is_there = next_page - number, page is not None
            else:
                byte = page[(number & 0xFFFF) >> 3]
                if byte in (0, 255) and not number & 7:
                    skip, is_there = min(8, stop - number), byte == 255
                else:
                    skip, is_there = 1, bool(byte & (1 << (number & 7)))
            if not is_there and began is None:
                began = number
            elif is_there and began is not None:
                yield began, number
                began = None
            number += skip
        if began is not None:
            yield began, stop


class Bytemap:
    """A byte for each number; 0 where none was set."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def put(self, number: int, value: int) -> None:
        """Set the lowest byte of a value."""
        page = self._pages.get(number >> 16)
        if page is None:
            page = self._pages[number >> 16] = bytearray(_PAGE_BITS)
        page[number & 0xFFFF] = value & 0xFF

    def __getitem__(self, number: int) -> int:
        page = self._pages.get(number >> 16)
        return 0 if page is None else page[number & 0xFFFF]
