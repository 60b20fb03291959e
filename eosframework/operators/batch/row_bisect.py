"""Bisection of rows for which a function over many rows fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from eosframework.errors import EosError, raised_by_functions

T = TypeVar("T")

Done = tuple[int, int, T | BaseException]
"""First row, end of the rows (exclusive), and the result; for a single row it may be its error."""


def bisect_rows(first: int, end: int, work: Callable[[int, int], T]) -> Iterator[Done[T]]:
    """Yield the results of `work` over rows, bisected where it fails, down to the failing row.

    An EosError does not depend on single rows and is raised.

    Args:
        first: the first row.
        end: the end of the rows, exclusive.
        work: takes such a pair; fails where a row does not fit.
    """
    try:
        result = work(first, end)
    except EosError:
        raise
    except raised_by_functions() as error:
        failure = error
    else:
        yield first, end, result
        return
    if end - first == 1:
        yield first, end, failure.with_traceback(None)
        return
    middle = (first + end) // 2
    yield from bisect_rows(first, middle, work)
    yield from bisect_rows(middle, end, work)
