"""What operators need from the outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class CommittedStore(Protocol):
    """What one store of one task held after its last commit."""

    def get(self, key: bytes) -> bytes | None:
        """Return the entry of a key."""
        ...

    def scan(
        self, first: bytes = b"", last: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries with `first <= key < last` in the order of their bytes.

        What is written meanwhile does not show.

        Args:
            first: where to begin.
            last: where to end; None: behind the last key.
            reverse: from the last one to the first.
        """
        ...


class WholeTopic(Protocol):
    """The rows of a global table, as they are now."""

    def get(self, key: bytes, /) -> tuple[bytes, int] | None:
        """Return the encoded row of a key and its timestamp."""
        ...
