"""The declaration of a join."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, model_validator

from eosframework.topology.spec.keyed_spec import Declared, Duration

How = Literal["inner", "left", "outer"]


class JoinSpec(Declared):
    """Join records of the same key: with a table, or within an interval with a stream."""

    with_: str = Field(alias="with")
    """Table, global table, stream or branch to join with. These are tables: a source with `table`
    or `history`, the store of an aggregate without windows, a join of two tables, and any of these
    after filter and map_values."""

    by: str
    """module:function that takes the values of both sides, this side first, and returns the result.
    The value of a missing side is None, where the kind of join allows it."""

    kind: How = "inner"
    """inner: only records that have a match on both sides. left: also records of this side without
    a match. outer: records of either side without a match; not for a stream with a table."""

    key: str | None = None
    """With a global table, or of one table with another: module:function that takes the whole
    record and returns the key of the row; None: it has none. Default: the record's key."""

    within: Duration | None = None
    """With a stream: greatest distance between the event times of two records that match."""

    before: Duration | None = None
    """With a stream: how much earlier than this side's record the other record may be. Default:
    within."""

    after: Duration | None = None
    """With a stream: how much later than this side's record the other record may be. Default:
    within."""

    order: Literal["time", "arrival"] | None = None
    """With a table: the order of records and rows after a repartition topic. time: that of a
    backfill, so the same input gives the same results; each record waits until stream time has
    passed it. arrival: at once. Default: time for a table with history, else arrival."""

    grace: Duration = timedelta(0)
    """With a stream: how long after the end of an interval late records are accepted, in stream
    time."""

    late: str | None = None
    """With a stream: topic for records that arrive after their interval and its grace are over."""

    value: str | None = None
    """With a stream: serde of this side's values in the store. Default: the serde of the source;
    json if a step produced the value."""

    with_value: str | None = None
    """With a stream: serde of the other side's values in the store. Default: as for value."""

    store: str | None = None
    """With a stream: name of the store that buffers records. Of tables with `key`: start of the
    names of its stores and topics. Default: the name of the stream, or of the group_by before it,
    with `.join`."""

    @property
    def is_within(self) -> bool:
        """True if this is a join of two streams by the times of their records."""
        return any(each is not None for each in (self.within, self.before, self.after))

    @property
    def interval(self) -> tuple[timedelta, timedelta]:
        """The greatest time by which the other side's record may be earlier, and later."""
        within = self.within or timedelta(0)
        return (
            within if self.before is None else self.before,
            within if self.after is None else self.after,
        )

    @property
    def functions(self) -> dict[str, str]:
        """References to the functions of the join, by field name."""
        return {"by": self.by} if self.key is None else {"by": self.by, "key": self.key}

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.is_within:
            if self.key is not None:
                raise ValueError(
                    "key goes with a global table, and within, before and after with a stream; "
                    "group_by gives the records of a stream another key"
                )
            if self.order is not None:
                raise ValueError(
                    "order is for joins with a table: within, before and after compare times, so "
                    "the order of records changes no result. Leave order out"
                )
            return self
        needless = {"value", "with_value", "store", "grace", "late"} & self.model_fields_set
        if self.key is not None:
            needless -= {"store"}
        if needless:
            raise ValueError(
                f"{', '.join(sorted(needless))} is for joins of streams; state within: as well, "
                f"or leave it out"
            )
        return self
