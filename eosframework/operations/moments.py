"""Moments given by a user, as text in ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_ms(text: str) -> int:
    """Parse a time, to milliseconds since the epoch; without a zone it is UTC.

    Raises:
        ValueError: the text is not a time in ISO 8601.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(round(moment.timestamp() * 1000), 0)
