"""The declarations of keyed steps: what is stored for each key, how long, and what is emitted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from eosframework.topology.spec.zone_days import DAY_MS, rules_of, zone_days, zone_of

_FORM = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_PATTERN = r"^\d+(\.\d+)?(ms|s|m|h|d)$"


class Declared(BaseModel):
    """A part of a declaration; frozen, and an unknown key is an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )


DurationLike = timedelta | str
"""A timedelta, or a number with its unit: `10m`."""


def duration_of(wanted: Any) -> timedelta:
    """Return the duration that a user wrote.

    Raises:
        ValueError: it is not a duration, is negative, or is not a whole number of milliseconds.
    """
    found = wanted
    if isinstance(wanted, str) and (match := _FORM.fullmatch(wanted.strip())):
        found = _timedelta(float(match[1]) * _SECONDS[match[2]])
    if not isinstance(found, timedelta):
        raise ValueError(
            f"{wanted!r} is no duration; expected a number and its unit, as in 500ms, 30s, 10m, "
            f"1h or 7d"
        )
    if found < timedelta(0) or found % timedelta(milliseconds=1):
        raise ValueError(f"{wanted} cannot be used; expected whole milliseconds, not less than 0")
    return found


def _timedelta(seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"a duration has at most {timedelta.max.days:,} days") from None


def milliseconds(duration: timedelta) -> int:
    """Return a duration as a whole number of milliseconds; the rest is cut off."""
    return duration // timedelta(milliseconds=1)


def short(duration: timedelta | int) -> str:
    """Return the shortest form of a duration, or of a number of milliseconds."""
    left = duration if isinstance(duration, int) else milliseconds(duration)
    units = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
    name, size = next(((n, s) for n, s in units if left and left % s == 0), ("ms", 1))
    return f"{left // size}{name}"


Duration = Annotated[
    timedelta,
    BeforeValidator(duration_of),
    PlainSerializer(short, return_type=str),
    WithJsonSchema({"type": "string", "pattern": _PATTERN, "examples": ["30s", "10m", "1h"]}),
]
"""A field of a spec that holds a duration."""


def _more_than_nothing(ttl: timedelta | None) -> timedelta | None:
    if ttl is not None and not ttl:
        raise ValueError("ttl: 0 keeps nothing; expected more, or leave it out")
    return ttl


Ttl = Annotated[Duration | None, AfterValidator(_more_than_nothing)]
"""A field of a spec: how long an entry is valid; None: forever."""


_KINDS = ("tumbling", "hopping", "sliding", "session", "records")

_MOST_WINDOWS = 10_000
"""The most hopping windows of one record, each of which is an entry of a store."""

_MOST_RECORDS = 1_000_000
"""The most records of a window of records."""

_MOST_OF_A_KEY = 1000
"""The most windows of records that one record is in: they share the entry of its key."""


class WindowKind(StrEnum):
    """The way event time, or the sequence of a key's records, is divided into windows."""

    TUMBLING = "tumbling"
    """[0, size), [size, 2 size), …"""
    HOPPING = "hopping"
    """[0, size), [every, every + size), …"""
    SLIDING = "sliding"
    """[t - size, t] and (t, t + size] for every record at t; both ends are included."""
    SESSION = "session"
    """Records of a key whose times are at most size apart from one to the next."""
    RECORDS = "records"
    """The last `records` records of a key, after each `step` records."""
    LAST = "last"
    """The last `size` of event time, for which deduplication remembers single records."""


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of one kind, in milliseconds of event time or in numbers of records.

    Args:
        every_ms: from one start to the next, of hopping windows; else None.
        grace_ms: how long after its end a window accepts late records.
        close_idle_ms: after so long without a record open windows close; None: never.
        late: topic for records for which every window has closed.
        zone: of tumbling windows: `size_ms` is a number of days of this time zone, which have 23
            to 25 hours; None: all windows have the same length.
        zone_rules: digest of the zone's offsets where the topology was loaded.
        records: in a window of records, which has no size in time; else None.
        step: records of a key from the end of one such window to the end of the next.
    """

    kind: WindowKind
    size_ms: int
    every_ms: int | None = None
    grace_ms: int = 0
    close_idle_ms: int | None = None
    late: str | None = None
    zone: str | None = None
    zone_rules: str | None = None
    records: int | None = None
    step: int | None = None

    @property
    def is_timed(self) -> bool:
        """True if the windows follow event time; otherwise their bounds are numbers of records."""
        return self.kind is not WindowKind.RECORDS

    def aligned_around(self, time_ms: int) -> tuple[int, int]:
        """Return start and end of the tumbling window that contains a time.

        Raises:
            ValueError: this machine has no such zone, or no calendar has the time.
        """
        if self.zone is not None:
            return zone_days(self.zone, self.size_ms // DAY_MS).around(time_ms)
        start = time_ms // self.size_ms * self.size_ms
        return start, start + self.size_ms

    def end_of(self, start: int) -> int:
        """Return the end of the tumbling or hopping window with a start."""
        return start + self.size_ms if self.zone is None else self.aligned_around(start)[1]

    @property
    def longest_ms(self) -> int:
        """A length that no window exceeds: clocks are never put back by a day."""
        return self.size_ms + (0 if self.zone is None else DAY_MS)

    @property
    def signature(self) -> str:
        """The kind and size as text; a store made for another signature cannot be used."""
        if not self.is_timed:
            return f"{self.kind}:{self.records}/{self.step}"
        every = "" if self.every_ms is None else f"/{self.every_ms}"
        zone = "" if self.zone is None else f"@{self.zone}"
        return f"{self.kind}:{self.size_ms}{every}{zone}"


class WindowSpec(BaseModel):
    """The windows that group the records of each key by time, or by their number."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={"oneOf": [{"required": [kind]} for kind in _KINDS]},
    )

    tumbling: Duration | None = None
    """Windows of this size, one after the other."""

    zone: str | None = Field(default=None, min_length=1)
    """Time zone, as Europe/Berlin, whose days tumbling windows of 1d are, from midnight to midnight
    there; 7d are weeks from Monday. Default: windows are aligned to the epoch (UTC)."""

    hopping: Duration | None = None
    """Overlapping windows of this size; a new one starts every `every`."""

    every: Duration | None = None
    """Distance from the start of one hopping window to the start of the next."""

    sliding: Duration | None = None
    """A window for every set of records that are at most this far apart, as in Kafka Streams: one
    ends with each record, and one begins right after it."""

    session: Duration | None = None
    """Windows of records that are at most this far apart from one to the next."""

    records: int | None = Field(default=None, ge=1, le=_MOST_RECORDS)
    """Windows of this number of records of a key, in the order of their arrival and whatever their
    times. A result is sent with the record that completes a window."""

    step: int | None = Field(default=None, ge=1)
    """With records: send a result of the last `records` records after each `step` records of a key.
    Default: as many as records, so each record is in one window."""

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
        if self.records is not None:
            self._check_records(self.records)
            return self
        if self.step is not None:
            raise ValueError(
                "step is for windows of records: {records: 5, step: 2} is the last five records, "
                "after each second one. In time: {hopping: 1h, every: 10m}"
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
        if self.every is not None and self.size > _MOST_WINDOWS * self.every:
            raise ValueError(
                f"each record falls into {self.size // self.every:,} windows of {short(self.size)} "
                f"every {short(self.every)}; expected at most {_MOST_WINDOWS:,}, so a larger every"
            )
        if self.zone is not None:
            self._check_zone(self.zone)
        return self

    def _check_records(self, records: int) -> None:
        timed = ("every", "zone", "grace", "late", "close_when_idle")
        if given := [name for name in timed if name in self.model_fields_set]:
            raise ValueError(
                f"{given[0]} is for windows of time; windows of records go by the number of a "
                f"key's records alone, and none is late. Leave {given[0]} out"
            )
        step = self.step or records
        if step > records:
            raise ValueError(
                f"step has to be at most the records of the window ({records}): else there are "
                f"records in no window"
            )
        if records > _MOST_OF_A_KEY * step:
            raise ValueError(
                f"each record falls into {-(-records // step):,} windows of {records:,} records, "
                f"one every {step:,}; expected at most {_MOST_OF_A_KEY:,}, so a larger step"
            )

    def _check_zone(self, zone: str) -> None:
        if self.tumbling is None:
            raise ValueError(
                f"zone is for tumbling windows of days: {{tumbling: 1d, zone: {zone}}}; leave it "
                f"out of {self.kind} windows"
            )
        if self.size % timedelta(days=1):
            raise ValueError(
                f"windows of {short(self.size)} are no whole days of zone {zone}; expected 1d, 7d "
                f"(weeks from Monday) or another number of days, or no zone"
            )
        zone_of(zone)

    @property
    def kind(self) -> WindowKind:
        """The kind of window that was declared."""
        return WindowKind(next(kind for kind in _KINDS if getattr(self, kind) is not None))

    @property
    def size(self) -> timedelta:
        """The size of windows of time, or the gap that ends a session."""
        return getattr(self, self.kind.value)

    def window(self) -> Window:
        """Return the windows in the form that operators use."""
        if self.records is not None:
            step = self.step or self.records
            return Window(WindowKind.RECORDS, 0, records=self.records, step=step)
        idle = self.close_when_idle
        return Window(
            self.kind,
            milliseconds(self.size),
            None if self.every is None else milliseconds(self.every),
            milliseconds(self.grace),
            None if idle is None else milliseconds(idle),
            self.late,
            self.zone,
            None if self.zone is None else rules_of(self.zone),
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
    if found := _RECORDS.fullmatch(signature):
        records, step = found.groups()
        return f"windows of {records} records" + ("" if step == records else f" every {step}")
    if found := _WINDOWS.fullmatch(signature):
        kind, size, every, zone = found.groups()
        words = f"{kind} windows of {short(int(size))}"
        words += "" if every is None else f" every {short(int(every))}"
        return words + ("" if zone is None else f" in {zone}")
    return signature


_RECORDS = re.compile(r"records:(\d+)/(\d+)")
_INTERVAL = re.compile(r"-(\d+)/\+(\d+)/(\d+) ms")
_WINDOWS = re.compile(r"(\w+):(\d+)(?:/(\d+))?(?:@(\S+))?(?: ms)?")
"""Signatures stay as they are: stores contain them, and workers of other versions compare them."""


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
    def bound(self) -> int | None:
        """The most members of the stored value; None: it is no list."""
        return None

    @property
    def functions(self) -> dict[str, str]:
        """References to the functions that process values, by field name."""
        named = ((name, getattr(self, name)) for name in _FUNCTION_FIELDS if hasattr(self, name))
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
    """Aggregate each window separately: {tumbling: 1h}, {hopping: 1h, every: 10m}, {sliding: 5m},
    {session: 30m} or {records: 5}. Results are {start, end, value}. Default: one aggregate for each
    key, forever."""

    emit: Literal["each", "commit", "close"] = "each"
    """When results are sent to the next step. each: with every change; commit: the last value of
    each key or window in a transaction; close: each window once, when it accepts no more records.
    Left out of windows of records, which have one result."""

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
    records, the value is absent, and the key's next record starts a new one. Not for windows of
    time. Default: forever."""

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
        if window.records is not None:
            if "emit" in self.model_fields_set:
                raise ValueError(
                    "emit is not stated for windows of records: each sends one result, with the "
                    "record that completes it. Leave emit out"
                )
            return self
        if self.ttl is not None:
            raise ValueError(
                "ttl is not for windows of time; what a window keeps is removed when it has "
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


_FUNCTION_FIELDS = ("of", "by", "initial", "add", "subtract", "merge")
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

    subtract: str | None = None
    """module:function that takes the aggregate and a value that was added to it, and returns the
    aggregate without it; None deletes it. For a table after group_by, whose rows change."""


class AggregateSpec(ReduceSpec):
    """Fold the values of each key, starting with an initial aggregate."""

    initial: str
    """module:function that takes no argument and returns the first aggregate."""

    merge: str | None = None
    """module:function that takes the aggregates of two sessions, the earlier one first, and returns
    the aggregate of both; needed for session windows, where a record can join two sessions."""

    @model_validator(mode="after")
    def _sessions_merge(self) -> Self:
        check_merge(self.window, self.merge)
        return self


def check_merge(window: WindowSpec | None, merge: str | None) -> None:
    """Check that an aggregate over sessions, and no other, declares how two become one.

    Raises:
        ValueError: it does not.
    """
    is_session = window is not None and window.session is not None
    if is_session and merge is None:
        raise ValueError(
            "an aggregate over sessions needs merge: module:function, which takes the "
            "aggregates of two sessions that a record joins and returns that of both"
        )
    if merge is not None and not is_session:
        raise ValueError("merge is for windows that are sessions; leave it out")


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
