"""The protocols of the stores that operators read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class CommittedStore(Protocol):
    """The content of one task's store after its last commit."""

    def get(self, key: bytes) -> bytes | None:
        """Return the entry of a key."""
        ...

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with `first <= key < last` in byte order.

        Writes made during the scan are not visible to it.

        Args:
            first: the first key, inclusive.
            last: the last key, exclusive; None: the end of the store.
            reverse: iterate from the last key to the first.
        """
        ...


class WholeTopic(Protocol):
    """The current rows of a global table."""

    def get(self, key: bytes, /) -> tuple[bytes, int] | None:
        """Return the encoded row of a key and its timestamp."""
        ...
