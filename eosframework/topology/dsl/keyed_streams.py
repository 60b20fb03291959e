"""Operations on the records of each key: `KeyedStream`, the result of `group_by`."""

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
    """Options of every aggregate."""

    store: str
    """Name of the store. Default: the stream's name with the operator's."""
    value: SerdeLike
    """Serde of the aggregate, in the store and in the results. Default: json."""
    emit: Literal["each", "commit", "close"]
    """When results are sent to the next step. each (the default): with every change; commit: the
    last value of each key or window in a transaction; close: each window once, when it accepts no
    more records."""
    ttl: DurationLike
    """Lifetime of a value, in stream time. Default: forever."""
    version: int
    """Version of the format of the stored values. Raise it with a change that cannot read older
    values."""
    upgrade: FunctionLike
    """Takes the bytes of an older value and its version; returns the value of this version."""


class KeyedStream(Joinable):
    """Records of which all with the same key are processed by the same task, in order."""

    def __init__(self, stream: Stream, window: WindowSpec | None = None) -> None:
        self.recording = stream.recording
        self.node = stream.node
        self._stream = stream
        self._window = window

    def declared(self, operator: str, declared: Any, joined: Node | None = None) -> Stream:
        """Add a step, given as in a topology file."""
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
        """Aggregate the records of each key and window separately.

        Results are `WindowResult`s.

        Args:
            window: `tumbling(hours=1)`, `hopping("1h", every="10m")`, `sliding(minutes=5)` or
                `session(minutes=30)`.
            grace: how long after its end, in stream time, a window still accepts records.
            late: topic for records for which every window has closed.
            close_when_idle: with `emit="close"`: close open windows after so long without a record
                by the wall clock.
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
        """Pass on the first record of each key within a time, and drop its duplicates.

        Args:
            within: distance in event time from which two records are never duplicates.
            by: two records of a key are duplicates only if `by(value)` is equal. None: all are.
            late: topic for records older than stream time by more than `within`.
            store: its name. None: the stream's name with `.deduplicate`.
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
            options: see `Kept`; the value is an integer unless stated otherwise.
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
        """Keep `add(aggregate, value)` for each key, starting with `initial()`.

        Args:
            initial: returns the first aggregate.
            add: returns the next aggregate.
            merge: for sessions: `merge(aggregate, aggregate)`, when a record joins two.
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
