"""How large stores are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreStats:
    """How large a store is.

    Args:
        store: its name.
        keys: how many there are, perhaps estimated.
        disk_bytes: of its files.
        memory_bytes: of what is in memory and in no file yet.
    """

    store: str
    keys: int
    disk_bytes: int
    memory_bytes: int
