"""The declaration of an aggregate of several streams."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from eosframework.topology.spec.keyed_spec import KeyedSpec, check_merge


class CogroupSpec(KeyedSpec):
    """Fold the values of several streams into one aggregate for each key."""

    initial: str
    """module:function that takes no argument and returns the first aggregate."""

    add: tuple[str, ...]
    """For each stream of from:, in its order, module:function that takes the aggregate and a value
    of this stream and returns the next aggregate."""

    merge: str | None = None
    """module:function that takes the aggregates of two sessions, the earlier one first, and returns
    the aggregate of both; needed for session windows."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.add) < 2:
            raise ValueError(
                f"cogroup is of two streams at least, and add: has {len(self.add)} functions; for "
                f"one stream use aggregate"
            )
        check_merge(self.window, self.merge)
        return self

    @property
    def functions(self) -> dict[str, str]:
        """References to the functions that process values, by their roles."""
        adds = {f"add {number}": add for number, add in enumerate(self.add)}
        merge = {} if self.merge is None else {"merge": self.merge}
        return {"initial": self.initial, **adds, **merge}
