"""What a check is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Severity(StrEnum):
    """What follows from a finding."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def meaning(self) -> str:
        """What it says about the application."""
        return _MEANINGS[self]


_MEANINGS = {
    Severity.ERROR: "the guarantee does not hold, or a worker cannot start or go on",
    Severity.WARNING: "data or time may be lost when something fails, or something was not checked",
    Severity.NOTE: "good to know; nothing needs to be done",
}


@dataclass(frozen=True, slots=True)
class Unseen:
    """A part of the cluster that could not be looked at.

    Args:
        what: the part: "settings of the brokers".
        reason: why, and what to do about it.
        severity: of not having seen it.
    """

    what: str
    reason: str
    severity: Severity = Severity.WARNING


def not_asked(what: str, topic: str) -> Unseen:
    """Return why nothing was asked for which brokers would first create a topic of theirs.

    They would make it with the settings that they have, which may be what is to be mended.
    """
    return Unseen(
        what,
        f"topic {topic} does not exist yet, and brokers would create it to answer; run the doctor "
        f"again after the first start",
        Severity.NOTE,
    )


class NotSeen(Exception):
    """A judgement needs what could not be looked at."""

    def __init__(self, unseen: Unseen) -> None:
        super().__init__(unseen.reason)
        self.unseen = unseen


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A part of the cluster as it was seen, or why it was not."""

    found: T | Unseen

    def read(self) -> T:
        """Return what was seen.

        Raises:
            NotSeen: it was not; the check that needs it becomes a finding itself.
        """
        if isinstance(self.found, Unseen):
            raise NotSeen(self.found)
        return self.found


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing that a judgement found amiss; what it leaves out is the check's own.

    Args:
        about: the object: "broker 1", "topic orders".
        found: its value.
    """

    about: str
    found: str
    expected: str | None = None
    mend: str | None = None
    why: str | None = None
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A row of the table of checks.

    Args:
        id: its name, which stays.
        severity: of what it finds, unless the observation says otherwise.
        expected: what holds where it finds nothing.
        why: what happens otherwise, in one sentence.
        mend: the command or configuration line that mends it.
        judge: the pure function of a snapshot that finds.
    """

    id: str
    severity: Severity
    expected: str
    why: str
    mend: str
    judge: Callable[[Any], Iterable[Observation]]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a user should know, complete."""

    check: str
    severity: Severity
    about: str
    found: str
    expected: str
    why: str
    mend: str
