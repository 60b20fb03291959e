"""Emission: the times at which an aggregate sends its results downstream."""

from __future__ import annotations

from enum import StrEnum


class Emit(StrEnum):
    """The time at which an aggregate sends a result to the next step."""

    EACH = "each"
    """With each record that changes the aggregate."""
    COMMIT = "commit"
    """Once for each key and transaction, with the last value."""
    CLOSE = "close"
    """Once for each window, after the window has closed."""
