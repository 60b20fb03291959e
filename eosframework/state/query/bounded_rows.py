"""Rows of an answer, bounded in number and in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from eosframework.state.query.text_forms import as_json

RowT = TypeVar("RowT")


class BoundedRows(Generic[RowT]):
    """An iterable of the first rows, which ends at a number of rows or of bytes.

    Args:
        rows: anything that JSON can show.
        most: number of rows.
        most_bytes: of all rows as JSON. The last row may exceed them, so that each row can be read.
    """

    def __init__(self, rows: Iterable[RowT], most: int, most_bytes: int) -> None:
        self._rows = rows
        self._most = most
        self._most_bytes = most_bytes
        self.more = False
        """After the iteration: there are further rows."""

    def __iter__(self) -> Iterator[tuple[RowT, bytes]]:
        """Yield each row, and its JSON."""
        size = 0
        for count, row in enumerate(self._rows):
            if count == self._most or size >= self._most_bytes:
                self.more = True
                return
            encoded = as_json(row)
            size += len(encoded)
            yield row, encoded
