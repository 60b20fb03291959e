"""Checks and findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Severity(StrEnum):
    """The consequence of a finding."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def meaning(self) -> str:
        """Meaning for the application."""
        return _MEANINGS[self]


_MEANINGS = {
    Severity.ERROR: "the guarantee does not hold, or a worker cannot start or continue",
    Severity.WARNING: "data or time may be lost when something fails, or something was not checked",
    Severity.NOTE: "good to know; nothing needs to be done",
}


@dataclass(frozen=True, slots=True)
class Unseen:
    """A part of the cluster that could not be read.

    Args:
        what: the part: "settings of the brokers".
        reason: the cause, and the next step.
        severity: of the missing part.
    """

    what: str
    reason: str
    severity: Severity = Severity.WARNING


def not_asked(what: str, topic: str) -> Unseen:
    """Return the reason for skipping a request that would make brokers create an internal topic.

    They would create it with their current settings, which may be the ones to fix.
    """
    return Unseen(
        what,
        f"topic {topic} does not exist yet, and brokers would create it to answer; run the doctor "
        f"again after the first start",
        Severity.NOTE,
    )


class NotSeen(Exception):
    """A check needs a part of the cluster that could not be read."""

    def __init__(self, unseen: Unseen) -> None:
        super().__init__(unseen.reason)
        self.unseen = unseen


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A part of the cluster, or the reason why it could not be read."""

    found: T | Unseen

    def read(self) -> T:
        """Return the part.

        Raises:
            NotSeen: it could not be read; the check becomes a finding itself.
        """
        if isinstance(self.found, Unseen):
            raise NotSeen(self.found)
        return self.found


@dataclass(frozen=True, slots=True)
class Observation:
    """One problem found by a check; a missing field defaults to that of the check.

    Args:
        about: the object: "broker 1", "topic orders".
        found: its value.
    """

    about: str
    found: str
    expected: str | None = None
    fix: str | None = None
    why: str | None = None
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A check, with its texts in `checks.yaml`.

    Args:
        id: a stable name.
        severity: of its findings, unless the observation has its own.
        expected: the healthy state.
        why: the consequence otherwise, in one sentence.
        fix: the command or configuration line that fixes it.
        judge: a pure function from a snapshot to observations.
    """

    id: str
    severity: Severity
    expected: str
    why: str
    fix: str
    judge: Callable[[Any], Iterable[Observation]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A complete finding of the report."""

    check: str
    severity: Severity
    about: str
    found: str
    expected: str
    why: str
    fix: str
