"""What can be done with the records of each key: `KeyedStream`, what `group_by` returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from eosframework.serdes import SerdeLike
from eosframework.topology.recording import FunctionLike

if TYPE_CHECKING:
    from eosframework.topology.builder import Stream


class Kept(TypedDict, total=False):
    """What can be said of every operator that keeps something for each key."""

    store: str
    """Name of the store. Default: that of the stream with that of the operator."""
    value: SerdeLike
    """Serde of what is kept, which is also what goes on. Default: json."""
    emit: Literal["each", "commit"]
    """What goes on: each, every change (the default); commit, the last value of each key in a
    transaction."""
    version: int
    """Of the format of what is kept; raise it with a change that older values do not fit."""
    upgrade: FunctionLike
    """Takes the bytes of an older value and its version; returns the value of this version."""


class KeyedStream:
    """Records of which those with the same key are in the same task, one after the other."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def count(self, **options: Unpack[Kept]) -> Stream:
        """Count the records of each key.

        Args:
            options: see `Kept`; the value is an integer unless said otherwise.
        """
        return self._fold("count", {}, options)

    def sum(self, of: FunctionLike, **options: Unpack[Kept]) -> Stream:
        """Add up `of(value)` for each key."""
        return self._fold("sum", {"of": of}, options)

    def min(self, of: FunctionLike, **options: Unpack[Kept]) -> Stream:
        """Keep the smallest `of(value)` of each key."""
        return self._fold("min", {"of": of}, options)

    def max(self, of: FunctionLike, **options: Unpack[Kept]) -> Stream:
        """Keep the greatest `of(value)` of each key."""
        return self._fold("max", {"of": of}, options)

    def reduce(self, add: FunctionLike, **options: Unpack[Kept]) -> Stream:
        """Keep the first value of each key, then `add(aggregate, value)`."""
        return self._fold("reduce", {"add": add}, options)

    def aggregate(
        self, initial: FunctionLike, add: FunctionLike, **options: Unpack[Kept]
    ) -> Stream:
        """Keep `add(aggregate, value)` for each key, from `initial()` on."""
        return self._fold("aggregate", {"initial": initial, "add": add}, options)

    def _fold(self, operator: str, functions: Mapping[str, FunctionLike], options: Kept) -> Stream:
        recording = self._stream.recording
        declared: dict[str, Any] = {**options}
        if "value" in options:
            declared["value"] = recording.serde(options["value"])
        if "upgrade" in options:
            declared["upgrade"] = recording.reference("upgrade", options["upgrade"])
        for name, function in functions.items():
            declared[name] = recording.reference(operator, function)
        return self._stream.declared(operator, declared)
