"""The declaration of the windows of a keyed step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from eosframework.topology.spec.fields import Duration, milliseconds, short

_KINDS = ("tumbling", "hopping", "sliding", "session")

MOST_WINDOWS = 10_000
"""The most hopping windows of one record, each of which is an entry of a store."""


class WindowKind(StrEnum):
    """The way event time is divided into windows."""

    TUMBLING = "tumbling"
    """[0, size), [size, 2 size), …"""
    HOPPING = "hopping"
    """[0, size), [every, every + size), …"""
    SLIDING = "sliding"
    """[t - size, t] and (t, t + size] for every record at t; both ends are included."""
    SESSION = "session"
    """Records of a key whose times are at most size apart from one to the next."""
    LAST = "last"
    """The last `size` of event time, for which deduplication remembers single records."""


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of one kind, in milliseconds of event time.

    Args:
        every_ms: from one start to the next, of hopping windows; else None.
        grace_ms: how long after its end a window accepts late records.
        close_idle_ms: after so long without a record open windows close; None: never.
        late: topic for records for which every window has closed.
    """

    kind: WindowKind
    size_ms: int
    every_ms: int | None = None
    grace_ms: int = 0
    close_idle_ms: int | None = None
    late: str | None = None

    @property
    def signature(self) -> str:
        """The kind and size as text; a store made for another signature cannot be used."""
        every = "" if self.every_ms is None else f"/{self.every_ms}"
        return f"{self.kind}:{self.size_ms}{every}"


class WindowSpec(BaseModel):
    """The windows that group the records of each key by time."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={"oneOf": [{"required": [kind]} for kind in _KINDS]},
    )

    tumbling: Duration | None = None
    """Windows of this size, one after the other."""

    hopping: Duration | None = None
    """Overlapping windows of this size; a new one starts every `every`."""

    every: Duration | None = None
    """Distance from the start of one hopping window to the start of the next."""

    sliding: Duration | None = None
    """A window for every set of records that are at most this far apart, as in Kafka Streams: one
    ends with each record, and one begins right after it."""

    session: Duration | None = None
    """Windows of records that are at most this far apart from one to the next."""

    grace: Duration = timedelta(0)
    """Time after its end, in stream time, during which a window still accepts records."""

    late: str | None = Field(default=None, min_length=1)
    """Topic for records for which every window has closed, written unchanged. Late records are
    counted in any case."""

    close_when_idle: Duration | None = None
    """Close open windows after this long without a record by the wall clock, although stream time
    has not passed their end. Records that arrive for them later are late."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a window is of exactly one kind, this one of {len(given)}; expected one of "
                f"{', '.join(_KINDS)}"
            )
        if (self.hopping is None) != (self.every is None):
            raise ValueError(
                "hopping and every go together: {hopping: 1h, every: 10m} is a window of an hour "
                "that begins every ten minutes"
            )
        if not self.size:
            raise ValueError(f"{given[0]}: 0 is no size of a window; expected more")
        if self.every is not None and not timedelta(0) < self.every <= self.size:
            raise ValueError(
                f"every has to be more than 0 and not more than the window ({self.size}): else "
                f"there are records in no window"
            )
        if self.every is not None and self.size > MOST_WINDOWS * self.every:
            raise ValueError(
                f"each record falls into {self.size // self.every:,} windows of {short(self.size)} "
                f"every {short(self.every)}; expected at most {MOST_WINDOWS:,}, so a larger every"
            )
        return self

    @property
    def kind(self) -> WindowKind:
        """The kind of window that was declared."""
        return WindowKind(next(kind for kind in _KINDS if getattr(self, kind) is not None))

    @property
    def size(self) -> timedelta:
        """The size of the windows, or the gap that ends a session."""
        return getattr(self, self.kind.value)

    def window(self) -> Window:
        """Return the windows in the form that operators use."""
        idle = self.close_when_idle
        return Window(
            self.kind,
            milliseconds(self.size),
            None if self.every is None else milliseconds(self.every),
            milliseconds(self.grace),
            None if idle is None else milliseconds(idle),
            self.late,
        )


def windows_in_words(signature: str | None) -> str:
    """Return the windows or the interval of a store in the user's terms.

    Args:
        signature: of `Window`, or of the interval of a join; None: there are no windows.
    """
    if signature is None:
        return "no windows"
    if found := _INTERVAL.fullmatch(signature):
        before, after, grace = (short(int(text)) for text in found.groups())
        return f"a join with before {before}, after {after} and grace {grace}"
    if found := _WINDOWS.fullmatch(signature):
        kind, size, every = found.groups()
        return f"{kind} windows of {short(int(size))}" + (
            "" if every is None else f" every {short(int(every))}"
        )
    return signature


_INTERVAL = re.compile(r"-(\d+)/\+(\d+)/(\d+) ms")
_WINDOWS = re.compile(r"(\w+):(\d+)(?:/(\d+))?(?: ms)?")
"""Signatures stay as they are: stores contain them, and workers of other versions compare them."""
