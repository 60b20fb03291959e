"""The layout of a store's entries: from their bytes to rows of keys and values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eosframework.engine.operators.binding import format_of
from eosframework.engine.operators.store_transaction import CommittedStore
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import Store


@dataclass(frozen=True, slots=True)
class Row:
    """A decoded row of a store.

    Args:
        key: decoded.
        value: decoded; of a window a `WindowResult`.
        timestamp: in milliseconds since the epoch.
    """

    key: Any
    value: Any
    timestamp: int


class Layout(ABC):
    """The layout of one store's entries.

    Args:
        store: of the topology.

    Attributes:
        has_one_row: of each key; else a key has several, such as one for each window.
    """

    has_one_row = False

    def __init__(self, store: Store) -> None:
        self.store = store
        self._form = format_of(store)

    @abstractmethod
    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the rows of a key: one row, or one for each window.

        Raises:
            RunError: an entry has a version that the topology cannot read.
        """

    @abstractmethod
    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield the rows of the keys with `first <= key < last`.

        Args:
            content: of one task's store.
            first: encoded key.
            last: encoded key; None: no end.
        """

    def _row(self, key: bytes, value: Any, timestamp: int) -> Row:
        return Row(self._decoded(self.store.key, key), value, timestamp)

    def _decoded(self, serde: Serde, data: bytes) -> Any:
        return data if serde.decode is None else self._form.held.reading(serde.decode)(data)


def bounds(prefix: bytes, first: bytes, last: bytes | None) -> tuple[bytes, bytes]:
    """Return a range of keys with a prefix; no prefix here ends with the greatest byte."""
    if last is not None:
        return prefix + first, prefix + last
    end = int.from_bytes(prefix, "big") + 1
    return prefix + first, end.to_bytes(len(prefix), "big")
