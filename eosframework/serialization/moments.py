"""Moments as text in ISO 8601: given by a user, or shown."""

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


def moment_text(milliseconds: int | None) -> str:
    """Return a time as text in UTC; without a time, `any`."""
    if milliseconds is None:
        return "any"
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
