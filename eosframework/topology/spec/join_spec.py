"""Joins as a user wrote them."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, model_validator

from eosframework.topology.spec.declared import Declared
from eosframework.topology.spec.durations import Duration

How = Literal["inner", "left", "outer"]


class JoinSpec(Declared):
    """Put together what has the same key: with a table, or within an interval with a stream."""

    with_: str = Field(alias="with")
    """Table, global table, stream or branch to join with. A table is a source that says so, what
    an aggregate keeps, a join of two tables, or one of these behind filter and map_values."""

    by: str
    """module:function that takes the values of both sides, this one's first, and returns the
    result. A side that has none is None, where the kind lets it."""

    kind: How = "inner"
    """inner: only where both sides have something. left: also what of this side meets nothing.
    outer: what of either side meets nothing; not of a stream with a table."""

    key: str | None = None
    """With a global table: module:function that takes the whole record and returns the key of the
    row. Default: the record's key."""

    within: Duration | None = None
    """With a stream: how far apart the times of two records may be that meet."""

    before: Duration | None = None
    """With a stream: how much earlier than this side's record the other one may be. Default:
    within."""

    after: Duration | None = None
    """With a stream: how much later it may be. Default: within."""

    grace: Duration = timedelta(0)
    """With a stream: how long, in the time of the records, those that come late are waited for."""

    late: str | None = None
    """With a stream: topic that takes records that come when their interval is over."""

    value: str | None = None
    """With a stream: serde of this side's values while they wait. Default: that of the source;
    json where a step made the value."""

    with_value: str | None = None
    """With a stream: serde of the other side's values while they wait. Default: likewise."""

    store: str | None = None
    """With a stream: name of the store where records wait. Default: that of the stream with
    `.join`."""

    @property
    def is_within(self) -> bool:
        """Whether it joins records of two streams by their times."""
        return any(each is not None for each in (self.within, self.before, self.after))

    @property
    def interval(self) -> tuple[timedelta, timedelta]:
        """How much earlier, and how much later, the other side's record may be."""
        within = self.within or timedelta(0)
        return (
            within if self.before is None else self.before,
            within if self.after is None else self.after,
        )

    @property
    def functions(self) -> dict[str, str]:
        """References to its functions, by the names of their fields."""
        return {"by": self.by} if self.key is None else {"by": self.by, "key": self.key}

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.is_within:
            if self.key is not None:
                raise ValueError(
                    "key goes with a global table, and within, before and after with a stream; "
                    "group_by gives the records of a stream another key"
                )
            return self
        needless = {"value", "with_value", "store", "grace", "late"} & self.model_fields_set
        if needless:
            raise ValueError(
                f"{', '.join(sorted(needless))} is for joins of streams; state within: as well, "
                f"or leave it out"
            )
        return self
