"""Keyed steps as a user wrote them: what is kept for each key, for how long, and what goes on."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from eosframework.topology.spec.declared import Declared
from eosframework.topology.spec.durations import Duration, Ttl, milliseconds
from eosframework.topology.spec.window_spec import Window, WindowKind, WindowSpec


class StoredSpec(Declared):
    """What all steps have in common that keep something for each key."""

    store: str | None = None
    """Name of the store. Default: that of the stream with that of the operator."""

    @property
    def functions(self) -> dict[str, str]:
        """References to the functions that values go through, by the names of their fields."""
        named = ((name, getattr(self, name)) for name in FUNCTION_FIELDS if hasattr(self, name))
        return {name: reference for name, reference in named if reference is not None}

    @property
    def all_functions(self) -> dict[str, str]:
        """References to all functions, likewise."""
        return self.functions


class KeyedSpec(StoredSpec):
    """What all steps have in common that fold the values of each key."""

    value: str | None = None
    """Serde of what is kept, which is also what goes on."""

    window: WindowSpec | None = None
    """Fold the values of each window by themselves: {tumbling: 1h}, {hopping: 1h, every: 10m},
    {sliding: 5m} or {session: 30m}. Results go on as {start, end, value}. Default: one value for
    each key, for ever."""

    emit: Literal["each", "commit", "close"] = "each"
    """What goes on: each, every change; commit, the last value of each key or window in a
    transaction; close, each window once, when it takes no more records."""

    version: int = Field(default=1, ge=1, le=255)
    """Of the format of what is kept; raise it with a change that older values do not fit."""

    upgrade: str | None = None
    """module:function that takes the bytes of an older value and its version, and returns the
    value of this version."""

    ttl: Ttl = None
    """How long a value counts: it is absent, and the next record of its key begins anew, once
    stream time is further than this past the greatest time of its records. Default: for ever."""

    @property
    def all_functions(self) -> dict[str, str]:
        """References to all functions, by the names of their fields."""
        upgrade = {} if self.upgrade is None else {"upgrade": self.upgrade}
        return {**self.functions, **upgrade}

    @model_validator(mode="after")
    def _emit_fits(self) -> Self:
        window = self.window
        if self.emit == "close" and window is None:
            raise ValueError("emit: close needs a window, whose end it waits for; state window:")
        if window is None:
            return self
        if self.ttl is not None:
            raise ValueError(
                "ttl is for values without a window; what a window keeps is removed when it has "
                "ended and its grace is over. Leave ttl out, or window"
            )
        if self.emit == "commit" and window.sliding is not None:
            raise ValueError("sliding windows have emit: each or close, not commit")
        if self.emit != "close" and window.close_when_idle is not None:
            raise ValueError(
                "close_when_idle is for emit: close; with any other, results are out already"
            )
        return self


FUNCTION_FIELDS = ("of", "by", "initial", "add", "merge")
"""Names of the fields that hold functions which values go through."""


class CountSpec(KeyedSpec):
    """Count the records of each key."""


class OfSpec(KeyedSpec):
    """Fold what a function makes of each value."""

    of: str
    """module:function that takes the value."""


class ReduceSpec(KeyedSpec):
    """Fold the values of each key, from its first one on."""

    add: str
    """module:function that takes the aggregate and a value and returns the next aggregate."""


class AggregateSpec(ReduceSpec):
    """Fold the values of each key, from an initial aggregate on."""

    initial: str
    """module:function that takes nothing and returns the first aggregate."""

    merge: str | None = None
    """module:function that takes the aggregates of two sessions, the earlier one first, and
    returns that of both; needed where a record can join two sessions."""

    @model_validator(mode="after")
    def _sessions_merge(self) -> Self:
        is_session = self.window is not None and self.window.session is not None
        if is_session and self.merge is None:
            raise ValueError(
                "an aggregate over sessions needs merge: module:function, which takes the "
                "aggregates of two sessions that a record joins and returns that of both"
            )
        if self.merge is not None and not is_session:
            raise ValueError("merge is for windows that are sessions; leave it out")
        return self


class DeduplicateSpec(StoredSpec):
    """Let the first record of each key within a time go on."""

    within: Duration
    """How far apart in time records are that count as different ones in any case. A record that
    is further than this behind the newest one is late: it does not go on."""

    by: str | None = None
    """module:function that takes the value; records of a key are the same only if it gives the
    same for them. Default: all records of a key are the same."""

    late: str | None = Field(default=None, min_length=1)
    """Topic that takes records that are late, as they came. They are counted in any case."""

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if not self.within:
            raise ValueError("within: 0 lets every record go on; expected more")
        return self

    def window(self) -> Window:
        """Return for how long records are remembered."""
        return Window(WindowKind.LAST, milliseconds(self.within), late=self.late)
