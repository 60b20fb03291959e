"""Finds the rows for which something fails that is done to many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from eosframework.errors import EosError, raised_by_functions

T = TypeVar("T")

Done = tuple[int, int, T | BaseException]
"""First row, the row behind the last one, and what was made of them; of one row also its error."""


def by_halves(first: int, end: int, work: Callable[[int, int], T]) -> Iterator[Done[T]]:
    """Give what `work` makes of rows, at once or in parts where it fails, down to the row at fault.

    An EosError is no matter of single rows and goes through.

    Args:
        first: row.
        end: the row behind the last one.
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
    yield from by_halves(first, middle, work)
    yield from by_halves(middle, end, work)
