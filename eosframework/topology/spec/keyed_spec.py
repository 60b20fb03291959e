"""The declarations of keyed steps: what is stored for each key, how long, and what is emitted."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from eosframework.topology.spec.fields import Declared, Duration, Ttl, milliseconds
from eosframework.topology.spec.window_spec import Window, WindowKind, WindowSpec


class Emit(StrEnum):
    """The time at which an aggregate sends a result to the next step."""

    EACH = "each"
    """With each record that changes the aggregate."""
    COMMIT = "commit"
    """Once for each key and transaction, with the last value."""
    CLOSE = "close"
    """Once for each window, after the window has closed."""


class Order(StrEnum):
    """The order in which a step after a repartition topic gets its records."""

    TIME = "time"
    """That of a backfill: each record waits until stream time has passed it."""
    ARRIVAL = "arrival"
    """That in which they arrive, which depends on the speeds of the upstream tasks."""


class StoredSpec(Declared):
    """The base of all steps that store an entry for each key."""

    store: str | None = None
    """Name of the store. Default: the name of the stream, or of the group_by before it, with the
    operator's."""

    @property
    def functions(self) -> dict[str, str]:
        """References to the functions that process values, by field name."""
        named = ((name, getattr(self, name)) for name in FUNCTION_FIELDS if hasattr(self, name))
        return {name: reference for name, reference in named if reference is not None}

    @property
    def all_functions(self) -> dict[str, str]:
        """References to all functions, by field name."""
        return self.functions


class KeyedSpec(StoredSpec):
    """The base of all steps that fold the values of each key."""

    value: str | None = None
    """Serde of the aggregate, in the store and in the results."""

    window: WindowSpec | None = None
    """Aggregate each window separately: {tumbling: 1h}, {hopping: 1h, every: 10m}, {sliding: 5m} or
    {session: 30m}. Results are {start, end, value}. Default: one aggregate for each key, forever.
    """

    emit: Literal["each", "commit", "close"] = "each"
    """When results are sent to the next step. each: with every change; commit: the last value of
    each key or window in a transaction; close: each window once, when it accepts no more records.
    """

    version: int = Field(default=1, ge=1, le=255)
    """Version of the format of the stored values, 1 to 255. Raise it with a change that cannot read
    older values."""

    upgrade: str | None = None
    """module:function that takes the bytes of an older value and its version, and returns the value
    of this version."""

    order: Literal["time", "arrival"] | None = None
    """The order of records after a repartition topic. time: that of a backfill, so the same input
    gives the same results; each record waits until stream time has passed it. arrival: at once.
    Default: time for sessions and sliding windows with emit: close, else arrival."""

    ttl: Ttl = None
    """Lifetime of a value: once stream time is more than this past the greatest time of its
    records, the value is absent, and the key's next record starts a new one. Default: forever."""

    @property
    def all_functions(self) -> dict[str, str]:
        """References to all functions, by field name."""
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


def order_of(declared: StoredSpec, window: Window | None) -> Order:
    """Return the order in which a step gets its records."""
    if isinstance(declared, DeduplicateSpec):
        return Order(declared.order or Order.TIME)
    assert isinstance(declared, KeyedSpec), "the other steps have no order"
    if declared.order is not None:
        return Order(declared.order)
    needs = window is not None and window.kind in (WindowKind.SLIDING, WindowKind.SESSION)
    return Order.TIME if needs and declared.emit == "close" else Order.ARRIVAL


FUNCTION_FIELDS = ("of", "by", "initial", "add", "merge")
"""Names of the fields whose functions process values."""


class CountSpec(KeyedSpec):
    """Count the records of each key."""


class OfSpec(KeyedSpec):
    """Fold the result of a function of each value."""

    of: str
    """module:function that takes the value and returns a number; or a text, for min and max with
    value: string. Anything else is that record's error."""


class ReduceSpec(KeyedSpec):
    """Fold the values of each key, starting with the first value."""

    add: str
    """module:function that takes the aggregate and a value and returns the next aggregate."""


class AggregateSpec(ReduceSpec):
    """Fold the values of each key, starting with an initial aggregate."""

    initial: str
    """module:function that takes no argument and returns the first aggregate."""

    merge: str | None = None
    """module:function that takes the aggregates of two sessions, the earlier one first, and returns
    the aggregate of both; needed for session windows, where a record can join two sessions."""

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
    """Pass on the first record of each key within a time, and drop its duplicates."""

    within: Duration
    """Distance in event time from which two records are never duplicates. A record that is older
    than stream time by more than this is late: it is not passed on."""

    by: str | None = None
    """module:function that takes the value; two records of a key are duplicates only if it returns
    the same for both. Default: all records of a key are duplicates."""

    late: str | None = Field(default=None, min_length=1)
    """Topic for late records, written unchanged. Late records are counted in any case."""

    order: Literal["time", "arrival"] | None = None
    """The order of records after a repartition topic. time (the default): that of a backfill, so
    the same input gives the same results; each record waits until stream time has passed it.
    arrival: at once; the first of two duplicates depends on the speeds of the upstream tasks."""

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if not self.within:
            raise ValueError("within: 0 passes every record on; expected more")
        return self

    def window(self) -> Window:
        """Return the window within which records are remembered."""
        return Window(WindowKind.LAST, milliseconds(self.within), late=self.late)
