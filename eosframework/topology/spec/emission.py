"""When something that is kept goes on."""

from __future__ import annotations

from enum import StrEnum


class Emit(StrEnum):
    """When an aggregate goes on to what follows it."""

    EACH = "each"
    """With each record that changes it."""
    COMMIT = "commit"
    """Once for each key and transaction, with its last value."""
    CLOSE = "close"
    """Once, when its window has closed."""
