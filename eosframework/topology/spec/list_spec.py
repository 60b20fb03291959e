"""The declarations of aggregates whose value is a list of bounded length."""

from __future__ import annotations

from pydantic import Field

from eosframework.topology.spec.keyed_spec import KeyedSpec

_MOST = 10_000
"""The longest list: each record of its key reads and writes all of it."""


class RankedSpec(KeyedSpec):
    """Keep some values of each key, in the order of a number."""

    n: int = Field(ge=1, le=_MOST)
    """The most values that are kept."""

    by: str
    """module:function that takes the value and returns a number, by which values are ordered. Of
    equal numbers, the value that arrived first is first."""

    @property
    def bound(self) -> int:
        """The most members of the value."""
        return self.n


class DistinctSpec(KeyedSpec):
    """List the different results of a function for the values of each key."""

    by: str
    """module:function that takes the value and returns a text or a whole number."""

    limit: int = Field(ge=1, le=_MOST)
    """The most members of the list. A record with a further one fails, so that the list stays
    exact; `on_error` applies."""

    @property
    def bound(self) -> int:
        """The most members of the value."""
        return self.limit
