"""What can be done with the records of each key: `KeyedStream`, what `group_by` returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from eosframework.errors import TopologyError
from eosframework.serialization.serdes import SerdeLike
from eosframework.topology.dsl.join_methods import Joinable
from eosframework.topology.dsl.recorded_calls import FunctionLike, Node, caller
from eosframework.topology.dsl.window_declarations import window_of
from eosframework.topology.spec.durations import DurationLike
from eosframework.topology.spec.window_spec import WindowSpec

if TYPE_CHECKING:
    from eosframework.topology.dsl.streams import Stream


class Kept(TypedDict, total=False):
    """What can be said of every operator that keeps something for each key."""

    store: str
    """Name of the store. Default: that of the stream with that of the operator."""
    value: SerdeLike
    """Serde of what is kept, which is also what goes on. Default: json."""
    emit: Literal["each", "commit", "close"]
    """What goes on: each, every change (the default); commit, the last value of each key or window
    in a transaction; close, each window once, when it takes no more records."""
    ttl: DurationLike
    """How long a value counts, by the time of the stream. Default: for ever."""
    version: int
    """Of the format of what is kept; raise it with a change that older values do not fit."""
    upgrade: FunctionLike
    """Takes the bytes of an older value and its version; returns the value of this version."""


class KeyedStream(Joinable):
    """Records of which those with the same key are in the same task, one after the other."""

    def __init__(self, stream: Stream, window: WindowSpec | None = None) -> None:
        self.recording = stream.recording
        self.node = stream.node
        self._stream = stream
        self._window = window

    def declared(self, operator: str, declared: Any, joined: Node | None = None) -> Stream:
        """Add a step from what a topology file would say of it."""
        if self._window is not None:
            raise TopologyError(
                f"{caller()}: a window goes with an aggregate, not with {operator}; join first, "
                f"or join what the aggregate gives"
            )
        return self._stream.declared(operator, declared, joined)

    def window(
        self,
        window: WindowSpec,
        *,
        grace: DurationLike | None = None,
        late: str | None = None,
        close_when_idle: DurationLike | None = None,
    ) -> KeyedStream:
        """Fold the records of each key and window by themselves.

        Results go on as `WindowResult`.

        Args:
            window: `tumbling(hours=1)`, `hopping("1h", every="10m")`, `sliding(minutes=5)` or
                `session(minutes=30)`.
            grace: how long after its end a window still takes records, by the time of the stream.
            late: topic that takes records for which every window has closed.
            close_when_idle: with `emit="close"`: close open windows when nothing came for so long
                by the clock.
        """
        given = {"grace": grace, "late": late, "close_when_idle": close_when_idle}
        options = {name: value for name, value in given.items() if value is not None}
        declared = {**window.model_dump(exclude_unset=True), **options}
        return KeyedStream(self._stream, window_of(declared))

    def deduplicate(
        self,
        within: DurationLike,
        *,
        by: FunctionLike | None = None,
        late: str | None = None,
        store: str | None = None,
    ) -> Stream:
        """Let the first record of each key within a time go on, and none of its repetitions.

        Args:
            within: how far apart in time records are that count as different ones in any case.
            by: records of a key are the same only if `by(value)` is the same. None: all are.
            late: topic that takes records further than `within` behind the newest one.
            store: its name. None: that of the stream with `.deduplicate`.
        """
        recording = self._stream.recording
        declared = {
            "within": within,
            "by": None if by is None else recording.reference("deduplicate", by),
            "late": late,
            "store": store,
        }
        return self._stream.declared("deduplicate", declared)

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
        self,
        initial: FunctionLike,
        add: FunctionLike,
        *,
        merge: FunctionLike | None = None,
        **options: Unpack[Kept],
    ) -> Stream:
        """Keep `add(aggregate, value)` for each key, from `initial()` on.

        Args:
            initial: makes the first aggregate.
            add: makes the next one.
            merge: of sessions: `merge(aggregate, aggregate)` where a record joins two.
            options: see `Kept`.
        """
        functions = {"initial": initial, "add": add}
        if merge is not None:
            functions["merge"] = merge
        return self._fold("aggregate", functions, options)

    def _fold(self, operator: str, functions: Mapping[str, FunctionLike], options: Kept) -> Stream:
        recording = self._stream.recording
        declared: dict[str, Any] = {**options}
        if self._window is not None:
            declared["window"] = self._window
        if "value" in options:
            declared["value"] = recording.serde(options["value"])
        if "upgrade" in options:
            declared["upgrade"] = recording.reference("upgrade", options["upgrade"])
        for name, function in functions.items():
            declared[name] = recording.reference(operator, function)
        return self._stream.declared(operator, declared)
