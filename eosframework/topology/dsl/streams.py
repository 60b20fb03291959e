"""Streams: each operator returns a new one.

`Stream` and `KeyedStream`, the result of `group_by`, refer to each other, and share their joins.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NoReturn, Unpack

from pydantic import BaseModel, ValidationError
from typing_extensions import TypeVar

from eosframework.errors import TopologyError
from eosframework.records import Effect, K, Record, V, WindowResult
from eosframework.serialization.serdes import SerdeLike
from eosframework.topology.dsl.declarations import (
    AggregateOptions,
    CallOptions,
    FunctionLike,
    Node,
    OnceOptions,
    OnErrorLike,
    Recording,
    SchemaLike,
    StoreOptions,
    caller,
    declared_call,
    declared_effect,
    declared_store,
    first_problem,
    limited,
    message_of,
    policy_of,
)
from eosframework.topology.spec.call_spec import DEFAULT_BATCH
from eosframework.topology.spec.join_spec import How
from eosframework.topology.spec.keyed_spec import DurationLike, WindowSpec
from eosframework.topology.spec.topology_spec import (
    DEFAULT_BRANCH,
    SinkSpec,
    StepSpec,
    TableMode,
    TableSpec,
)

NewKey = TypeVar("NewKey", default=Any)
Made = TypeVar("Made", default=Any)
Row = TypeVar("Row", default=Any)
"""Types of new keys, of what a function makes of a value, and of the values that a join finds."""


class GlobalTable(Generic[K, V]):
    """A topic that every process keeps in memory; see `Topology.global_table`."""

    def __init__(self, recording: Recording, node: Node) -> None:
        self.recording = recording
        self.node = node

    def __repr__(self) -> str:
        return f"<GlobalTable {self.node.path} of {self.recording.application}>"


class Joinable(Generic[K, V]):
    """The methods that `Stream` and `KeyedStream` share."""

    recording: Recording
    node: Node

    def __repr__(self) -> str:
        """Return the calls that gave this stream, and the application's name."""
        return f"<{type(self).__name__} {self.node.path} of {self.recording.application}>"

    @abstractmethod
    def declared(self, operator: str, declared: Any, joined: Node | None = None) -> Stream:
        """Add a step, given as in a topology file."""

    def process(
        self,
        function: Callable[[Record[K, V]], Any] | Callable[[Record[K, V], Any], Any] | str,
        *,
        stores: Mapping[str, SerdeLike | StoreOptions] | None = None,
        on_timer: FunctionLike | None = None,
        on_wall_timer: FunctionLike | None = None,
        every: DurationLike | None = None,
        on_every: FunctionLike | None = None,
        order: Literal["time", "arrival"] | None = None,
        name: str | None = None,
    ) -> Stream:
        """Call a function with the whole record and pass on the records it returns, if any.

        Args:
            function: takes the record; with stores or timers, also a `Context`.
            stores: by the name of each store, as in `context.store(name)`, the serde of its
                values, or its `StoreOptions`.
            on_timer: takes key, time in milliseconds and context when a timer is due that was set
                with `context.set_timer`; returns records like the function.
            on_wall_timer: takes the same when the wall clock reaches a time that was set with
                `context.set_timer(at, clock="wall")`.
            every: interval of the wall clock at which `on_every` is called, in each task.
            on_every: takes the time in milliseconds and context; returns records like the function.
            order: of records after a repartition topic, with stores or timers. time: that of a
                backfill; each record waits until stream time has passed it. arrival: at once.
                None: time with `on_timer`, else arrival.
            name: start of the names of the stores. None: the name of the source, or of the stream
                or `group_by` that was named last.
        """
        reference = self.recording.reference
        functions = {
            "on_timer": on_timer,
            "on_wall_timer": on_wall_timer,
            "on_every": on_every,
        }
        options: dict[str, Any] = {
            role: reference(role, given) for role, given in functions.items() if given is not None
        }
        stated = {"every": every, "order": order, "name": name}
        options |= {option: value for option, value in stated.items() if value is not None}
        if stores is None and not options:
            return self.declared("process", reference("process", function))
        kept = (stores or {}).items()
        options["stores"] = {n: declared_store(self.recording, given) for n, given in kept}
        return self.declared("process", {"call": reference("process", function), **options})

    def every(
        self,
        interval: DurationLike,
        function: Callable[[int, Any], Any] | str,
        *,
        per: Literal["task", "application"] = "task",
        name: str | None = None,
    ) -> Stream:
        """Call a function at an interval of the wall clock; the result has the records it returns.

        It is called at the multiples of the interval since the epoch (UTC), whether records come
        or not. After a pause it is called once, not once for each missed time. Records of this
        stream end here. To read the stores of a `process` step, state `every` there.

        Args:
            interval: a timedelta, or text such as `10s`.
            function: takes the time in milliseconds since the epoch, and a `Context`; returns
                records like the function of `process`, or None.
            per: `"task"`: each task calls it. `"application"`: the task of partition 0 calls it.
            name: start of the name of the store with the last due time. None: as for `process`.
        """
        declared = {
            "every": interval,
            "on_every": self.recording.reference("on_every", function),
            "per": per,
            "name": name,
        }
        return self.declared("process", declared)

    def join(
        self,
        other: Stream[Any, Row] | GlobalTable[Any, Row],
        by: Callable[[V, Row], Made] | str,
        *,
        how: How = "inner",
        key: Callable[[Record[K, V]], Any] | str | None = None,
        order: Literal["time", "arrival"] | None = None,
        store: str | None = None,
    ) -> Stream[K, Made]:
        """Join each record with the row of a table; two tables are joined row by row.

        Args:
            other: a table: `Topology.table`, an aggregate, a join of tables, or one of these
                followed by `filter` and `map_values`; or a global table.
            by: takes the value and the row; the row is None if there is none.
            how: `"inner"`: only records with a row. `"left"`: all records of this side.
                `"outer"`, for two tables: all rows of both.
            key: with a global table, or of one table with another: takes the whole record and
                returns the row's key, None for no row. None: the record's key.
            order: after a repartition topic: `"time"`: records and rows in the order of a
                backfill, so the same input gives the same results; each waits until stream time
                has passed it. `"arrival"`: at once. None: `"time"` for a table with history, else
                `"arrival"`.
            store: of two tables with `key`: start of the names of the join's stores and topics.
                None: derived, with `.join`.

        Raises:
            TopologyError: the table is of another topology.
        """
        declared: dict[str, Any] = {"by": self.recording.reference("join", by), "kind": how}
        if key is not None:
            declared["key"] = self.recording.reference("join", key)
        if order is not None:
            declared["order"] = order
        if store is not None:
            declared["store"] = store
        return self._joined("join", other, declared)

    def join_within(
        self,
        other: Stream[Any, Row],
        by: Callable[[V, Row], Made] | str,
        within: DurationLike | None = None,
        *,
        before: DurationLike | None = None,
        after: DurationLike | None = None,
        grace: DurationLike = "0s",
        how: How = "inner",
        late: str | None = None,
        value: SerdeLike | None = None,
        with_value: SerdeLike | None = None,
        store: str | None = None,
    ) -> Stream[K, Made]:
        """Join each record with another stream's records of the same key that are close in time.

        Args:
            other: the stream.
            by: takes this side's value and the other's; one is None for a record without a match.
            within: greatest distance between the event times of two records that match.
            before: how much earlier the other record may be. None: `within`.
            after: how much later the other record may be. None: `within`.
            grace: how long after the end of an interval late records are accepted, in stream time.
            how: `"inner"`, `"left"` or `"outer"`: the sides whose records have a result even
                without a match, once none is possible any more.
            late: topic for records that arrive after their interval and its grace are over. None:
                they are only counted.
            value: serde of this side's values in the store. None: the serde of the source; json if
                a step produced the value.
            with_value: serde of the other side's values.
            store: name of the store that buffers records. None: derived, with `.join`.

        Raises:
            TopologyError: the stream is of another topology, or no time is given.
        """
        if within is None and before is None and after is None:
            raise TopologyError(
                f"{caller()}: join_within was given no time; say how far apart records may be, "
                f"as in within='10m'"
            )
        times = {"within": within, "before": before, "after": after, "grace": grace}
        serdes = {"value": value, "with_value": with_value}
        recording = self.recording
        declared: dict[str, Any] = {
            "by": recording.reference("join_within", by),
            "kind": how,
            **{name: time for name, time in times.items() if time is not None},
            **{name: recording.serde(serde) for name, serde in serdes.items() if serde is not None},
        }
        names = {"store": store, "late": late}
        declared.update({name: value for name, value in names.items() if value is not None})
        return self._joined("join_within", other, declared)

    def _joined(self, call: str, other: Stream | GlobalTable, declared: dict[str, Any]) -> Stream:
        if other.recording is not self.recording:
            raise TopologyError(
                f"{caller()}: {call} was given a stream of another topology, "
                f"{other.recording.application!r}; declare both with the same Topology"
            )
        # `flatten` sets the name of the other side, once all streams have names.
        return self.declared("join", {"with": "", **declared}, other.node)


class KeyedStream(Joinable[K, V]):
    """Records of which all with the same key are processed by the same task, in order."""

    def __init__(self, stream: Stream[K, V]) -> None:
        self.recording = stream.recording
        self.node = stream.node
        self._stream = stream

    def declared(self, operator: str, declared: Any, joined: Node | None = None) -> Stream:
        """Add a step, given as in a topology file."""
        return self._stream.declared(operator, declared, joined)

    def window(
        self,
        window: WindowSpec,
        *,
        grace: DurationLike | None = None,
        late: str | None = None,
        close_when_idle: DurationLike | None = None,
    ) -> WindowedStream[K, V]:
        """Aggregate the records of each key and window separately.

        Args:
            window: `tumbling(hours=1)`, `hopping("1h", every="10m")`, `sliding(minutes=5)` or
                `session(minutes=30)`; or of records: `tumbling(records=5)` or
                `sliding(records=5, step=2)`, without the options of time.
            grace: how long after its end, in stream time, a window still accepts records.
            late: topic for records for which every window has closed.
            close_when_idle: with `emit="close"`: close open windows after so long without a record
                by the wall clock.
        """
        return WindowedStream(self._stream, limited(window, grace, late, close_when_idle))

    def deduplicate(
        self,
        within: DurationLike,
        *,
        by: Callable[[V], Any] | str | None = None,
        late: str | None = None,
        store: str | None = None,
        order: Literal["time", "arrival"] | None = None,
    ) -> Stream[K, V]:
        """Pass on the first record of each key within a time, and drop its duplicates.

        Args:
            within: distance in event time from which two records are never duplicates.
            by: two records of a key are duplicates only if `by(value)` is equal. None: all are.
            late: topic for records older than stream time by more than `within`.
            store: its name. None: derived, with `.deduplicate`.
            order: of records after a repartition topic. time (the default): that of a backfill;
                each record waits until stream time has passed it. arrival: at once.
        """
        recording = self._stream.recording
        declared = {
            "within": within,
            "by": None if by is None else recording.reference("deduplicate", by),
            "late": late,
            "store": store,
            "order": order,
        }
        return self._stream.declared("deduplicate", declared)

    def count(self, **options: Unpack[AggregateOptions]) -> Stream[K, int]:
        """Count the records of each key.

        Args:
            options: see `AggregateOptions`; the value is an integer unless stated otherwise.
        """
        return _fold(self._stream, "count", {}, options)

    def sum(
        self, of: Callable[[V], Made] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, Made]:
        """Add up `of(value)` for each key."""
        return _fold(self._stream, "sum", {"of": of}, options)

    def min(
        self, of: Callable[[V], Made] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, Made]:
        """Keep the smallest `of(value)` of each key."""
        return _fold(self._stream, "min", {"of": of}, options)

    def max(
        self, of: Callable[[V], Made] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, Made]:
        """Keep the greatest `of(value)` of each key."""
        return _fold(self._stream, "max", {"of": of}, options)

    def top(
        self, n: int, by: Callable[[V], Any] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, list[V]]:
        """Keep the `n` values of each key with the greatest `by(value)`, greatest first.

        Args:
            n: the most values, up to 10,000.
            by: returns a number. Of equal ones, the value that arrived first is first.
            options: see `AggregateOptions`; the value is a list of the stream's values.
        """
        return _fold(self._stream, "top", {"by": by}, options, n=n)

    def bottom(
        self, n: int, by: Callable[[V], Any] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, list[V]]:
        """Keep the `n` values of each key with the smallest `by(value)`; see `top`."""
        return _fold(self._stream, "bottom", {"by": by}, options, n=n)

    def distinct(
        self, by: Callable[[V], Made] | str, limit: int, **options: Unpack[AggregateOptions]
    ) -> Stream[K, list[Made]]:
        """List the different `by(value)` of each key, in the order in which they came.

        Args:
            by: returns a text or a whole number.
            limit: the most members, up to 10,000. A record with a further one fails, so that the
                list stays exact; `on_error` applies.
            options: see `AggregateOptions`.
        """
        return _fold(self._stream, "distinct", {"by": by}, options, limit=limit)

    def reduce(
        self,
        add: Callable[[V, V], V] | str,
        subtract: Callable[[V, V], V | None] | str | None = None,
        **options: Unpack[AggregateOptions],
    ) -> Stream[K, V]:
        """Keep the first value of each key, then `add(aggregate, value)`.

        Args:
            add: returns the next aggregate.
            subtract: of a table: returns the aggregate without a value that was added to it.
            options: see `AggregateOptions`.
        """
        functions: dict[str, FunctionLike] = {"add": add}
        if subtract is not None:
            functions["subtract"] = subtract
        return _fold(self._stream, "reduce", functions, options)

    def aggregate(
        self,
        initial: Callable[[], Made] | str,
        add: Callable[[Made, V], Made] | str,
        subtract: Callable[[Made, V], Made | None] | str | None = None,
        **options: Unpack[AggregateOptions],
    ) -> Stream[K, Made]:
        """Keep `add(aggregate, value)` for each key, starting with `initial()`.

        Args:
            initial: returns the first aggregate.
            add: returns the next aggregate.
            subtract: of a table: returns the aggregate without a value that was added to it; None
                deletes it.
            options: see `AggregateOptions`.
        """
        functions: dict[str, FunctionLike] = {"initial": initial, "add": add}
        if subtract is not None:
            functions["subtract"] = subtract
        return _fold(self._stream, "aggregate", functions, options)


class WindowedStream(Generic[K, V]):
    """Records of each key and window, for an aggregate; results are `WindowResult`s."""

    def __init__(self, stream: Stream[K, V], window: WindowSpec) -> None:
        self._stream = stream
        self._window = window

    def __repr__(self) -> str:
        """Return the calls that gave this stream, and the application's name."""
        return f"<WindowedStream {self._stream.node.path} of {self._stream.recording.application}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse the operators of other streams."""
            if name.startswith("_") or (
                not hasattr(Stream, name) and not hasattr(KeyedStream, name)
            ):
                raise AttributeError(f"'WindowedStream' object has no attribute {name!r}")
            raise TopologyError(
                f"{caller()}: a window goes with an aggregate, not with {name}; join first, or "
                f"join what the aggregate gives"
            )

    def count(self, **options: Unpack[AggregateOptions]) -> Stream[K, WindowResult[int]]:
        """Count the records of each key and window.

        Args:
            options: see `AggregateOptions`; the value is an integer unless stated otherwise.
        """
        return _fold(self._stream, "count", {}, options, self._window)

    def sum(
        self, of: Callable[[V], Made] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, WindowResult[Made]]:
        """Add up `of(value)` for each key and window."""
        return _fold(self._stream, "sum", {"of": of}, options, self._window)

    def min(
        self, of: Callable[[V], Made] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, WindowResult[Made]]:
        """Keep the smallest `of(value)` of each key and window."""
        return _fold(self._stream, "min", {"of": of}, options, self._window)

    def max(
        self, of: Callable[[V], Made] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, WindowResult[Made]]:
        """Keep the greatest `of(value)` of each key and window."""
        return _fold(self._stream, "max", {"of": of}, options, self._window)

    def top(
        self, n: int, by: Callable[[V], Any] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, WindowResult[list[V]]]:
        """Keep the `n` greatest values of each key and window; see `KeyedStream.top`."""
        return _fold(self._stream, "top", {"by": by}, options, self._window, n=n)

    def bottom(
        self, n: int, by: Callable[[V], Any] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, WindowResult[list[V]]]:
        """Keep the `n` values of each key and window with the smallest `by(value)`; see `top`."""
        return _fold(self._stream, "bottom", {"by": by}, options, self._window, n=n)

    def distinct(
        self, by: Callable[[V], Made] | str, limit: int, **options: Unpack[AggregateOptions]
    ) -> Stream[K, WindowResult[list[Made]]]:
        """List the different `by(value)` of each key and window; see `KeyedStream.distinct`."""
        return _fold(self._stream, "distinct", {"by": by}, options, self._window, limit=limit)

    def reduce(
        self, add: Callable[[V, V], V] | str, **options: Unpack[AggregateOptions]
    ) -> Stream[K, WindowResult[V]]:
        """Keep the first value of each key and window, then `add(aggregate, value)`."""
        return _fold(self._stream, "reduce", {"add": add}, options, self._window)

    def aggregate(
        self,
        initial: Callable[[], Made] | str,
        add: Callable[[Made, V], Made] | str,
        *,
        merge: Callable[[Made, Made], Made] | str | None = None,
        **options: Unpack[AggregateOptions],
    ) -> Stream[K, WindowResult[Made]]:
        """Keep `add(aggregate, value)` for each key and window, starting with `initial()`.

        Args:
            initial: returns the first aggregate.
            add: returns the next aggregate.
            merge: for sessions: `merge(aggregate, aggregate)`, when a record joins two.
            options: see `AggregateOptions`.
        """
        functions: dict[str, FunctionLike] = {"initial": initial, "add": add}
        if merge is not None:
            functions["merge"] = merge
        return _fold(self._stream, "aggregate", functions, options, self._window)


def _fold(
    stream: Stream[Any, Any],
    operator: str,
    functions: Mapping[str, FunctionLike],
    options: AggregateOptions,
    window: WindowSpec | None = None,
    **bound: int,
) -> Stream[Any, Any]:
    """Add an aggregate."""
    recording = stream.recording
    declared = {**declared_options(recording, options, window), **bound}
    for name, function in functions.items():
        declared[name] = recording.reference(operator, function)
    return stream.declared(operator, declared)


def declared_options(
    recording: Recording, options: AggregateOptions, window: WindowSpec | None
) -> dict[str, Any]:
    """Return the options of an aggregate in the form of a topology file."""
    declared: dict[str, Any] = {**options}
    if window is not None:
        declared["window"] = window
    if "value" in options:
        declared["value"] = recording.serde(options["value"])
    if "upgrade" in options:
        declared["upgrade"] = recording.reference("upgrade", options["upgrade"])
    return declared


class Stream(Joinable[K, V]):
    """A stream of records. Each operator returns a new stream and leaves this one unchanged."""

    def __init__(self, recording: Recording, node: Node) -> None:
        self.recording = recording
        self.node = node

    def filter(self, function: Callable[[V], Any] | str) -> Stream[K, V]:
        """Keep the records for whose value `function` returns true."""
        return self._step("filter", function)

    def map_values(self, function: Callable[[V], Made | None] | str) -> Stream[K, Made]:
        """Replace the value with `function(value)`."""
        return self._step("map_values", function)

    def flat_map_values(
        self, function: Callable[[V], Iterable[Made] | None] | str
    ) -> Stream[K, Made]:
        """Replace the record with one record for each value of `function(value)`."""
        return self._step("flat_map_values", function)

    def peek(self, function: Callable[[V], Any] | str) -> Stream[K, V]:
        """Call `function(value)` and pass the record on unchanged.

        Its effects outside of Kafka are repeated when the transaction is retried.
        """
        return self._step("peek", function)

    def map_async(
        self,
        function: Callable[Concatenate[V, ...], Awaitable[Made | None]] | str,
        **options: Unpack[CallOptions],
    ) -> Stream[K, Made]:
        """Replace the value with what the coroutine `function(value)` returns, many at a time.

        The calls of a record end before it enters a transaction, so they are repeated when the
        transaction is. Must not follow a step that remembers, unless a `group_by` or a topic is
        between the two.

        Args:
            function: declared with `async def`; takes the value, and the resources by name.
            options: see `CallOptions`.
        """
        return self._call("map_async", function, options)

    def map_batch_async(
        self,
        function: Callable[Concatenate[list[V], ...], Awaitable[list[Made]]] | str,
        *,
        batch: int = DEFAULT_BATCH,
        **options: Unpack[CallOptions],
    ) -> Stream[K, Made]:
        """Replace values with those that the coroutine `function(values)` returns for several.

        The calls of records that begin together are one; see `map_async`. A value may come in
        another batch after an abort, so its result must not depend on the others.

        Args:
            function: declared with `async def`; takes a list of values, and the resources by name,
                and returns a list of as many results in their order.
            batch: the most values of a call. `concurrency` counts records: state a multiple of it.
            options: see `CallOptions`.
        """
        declared = declared_call(self.recording, "map_batch_async", function, options)
        return self.declared("map_batch_async", {**declared, "batch": batch})

    def filter_async(
        self,
        function: Callable[Concatenate[V, ...], Awaitable[Any]] | str,
        **options: Unpack[CallOptions],
    ) -> Stream[K, V]:
        """Keep the records for whose value the coroutine returns true; see `map_async`."""
        return self._call("filter_async", function, options)

    def for_each_async(
        self,
        function: Callable[Concatenate[V, ...], Awaitable[Any]] | str,
        **options: Unpack[CallOptions],
    ) -> Stream[K, V]:
        """Call the coroutine with the value and pass the record on unchanged; see `map_async`."""
        return self._call("for_each_async", function, options)

    def call_once(
        self,
        function: Callable[Concatenate[V, Effect, ...], Awaitable[Made | None] | Made | None] | str,
        **options: Unpack[OnceOptions],
    ) -> Stream[K, Made]:
        """Replace the value with what `function(value, effect)` returns, and call it once.

        For effects outside of Kafka: the intent is committed before the call and the result after
        it. A replay uses the result; `on_doubt` decides about an intent without a result. It may
        stand where `map_async` may.

        Args:
            function: with or without `async`; takes the value, the effect's key and attempt, and
                the resources by name. Its result is JSON.
            options: see `OnceOptions`; `on_doubt` is required.
        """
        declared = declared_effect(self.recording, function, options)
        return self.declared("call_once", declared)

    def map_batch(
        self, function: Callable[[Any], Any] | str, *, schema: SchemaLike | None = None
    ) -> Stream[K, V]:
        """Replace the values of a batch of records with the columns of `function(batch)`.

        Must directly follow a source of JSON values or another batch operator. The sizes of batches
        vary: for each row, `function` must return what it would return for that row alone.

        Args:
            function: takes a pyarrow.RecordBatch and returns one with as many rows, whose columns
                are the fields of the new values. Keys, times and headers stay.
            schema: the columns to read: types by name, a pydantic model or a pyarrow.Schema;
                `_key` and `_timestamp` are those of the records. None: after a batch operator.
        """
        return self._batch("map_batch", function, schema)

    def filter_batch(
        self, function: Callable[[Any], Any] | str, *, schema: SchemaLike | None = None
    ) -> Stream[K, V]:
        """Keep the records of a batch for which `function(batch)` is true.

        Args:
            function: takes a pyarrow.RecordBatch and returns an array of as many booleans; null
                counts as false.
            schema: as for `map_batch`.
        """
        return self._batch("filter_batch", function, schema)

    def select_key(
        self, function: Callable[[Record[K, V]], NewKey | None] | str
    ) -> Stream[NewKey, V]:
        """Replace the key with `function(record)`."""
        return self._step("select_key", function)

    def map(
        self, function: Callable[[Record[K, V]], Record[NewKey, Made] | tuple[NewKey, Made]] | str
    ) -> Stream[NewKey, Made]:
        """Replace the record with `function(record)`: a Record or (key, value)."""
        return self._step("map", function)

    def flat_map(
        self,
        function: Callable[
            [Record[K, V]], Iterable[Record[NewKey, Made] | tuple[NewKey, Made]] | None
        ]
        | str,
    ) -> Stream[NewKey, Made]:
        """Replace the record with each Record or (key, value) of `function(record)`."""
        return self._step("flat_map", function)

    def group_by(
        self,
        function: Callable[[Record[K, V]], NewKey | None] | str,
        *,
        key: SerdeLike | None = None,
        value: SerdeLike | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> KeyedStream[NewKey, V]:
        """Replace the key with `function(record)` and bring the records of each key together.

        They pass through a repartition topic, partitioned by the new key. A table is grouped with
        its changes: a `count`, `sum`, `reduce` or `aggregate` follows, takes the row before back
        from its group, and adds the new one to its own.

        Args:
            function: takes the whole record and returns the new key.
            key: serde of the new key. None: the serde of the previous key.
            value: serde of the value in the repartition topic. None: the serde of the source; json
                if a step produced the value.
            partitions: of the repartition topic. None: as many as the source has.
            name: of the repartition topic, and start of the names of the stores after it. None:
                the name of the source, or of the stream or `group_by` that was named last.
        """
        group = {
            "by": self.recording.reference("group_by", function),
            "key": None if key is None else self.recording.serde(key),
            "value": None if value is None else self.recording.serde(value),
            "partitions": partitions,
            "name": name,
        }
        return KeyedStream(self.declared("group_by", group))

    def group_by_key(self) -> KeyedStream[K, V]:
        """Bring the records of each key together, through a repartition topic if the key is new."""
        return KeyedStream(self)

    def merge(self, *others: Stream[K, V]) -> Stream[K, V]:
        """Merge this stream and `others` into one; each keeps its own order."""
        for other in others:
            if other.recording is not self.recording:
                raise TopologyError(
                    f"{caller()}: merge was given a stream of another topology, "
                    f"{other.recording.application!r}; declare both with the same Topology"
                )
        parents = (self.node, *(other.node for other in others))
        return self._next(Node(caller(), parents))

    def named(self, name: str) -> Stream[K, V]:
        """Name the stream that ends here, for messages, and for what is kept after it."""
        self._refuse_afterthought("named")
        return self._next(Node(caller(), (self.node,), name=name))

    def on_error(self, policy: OnErrorLike) -> Stream[K, V]:
        """Set the policy for records for which a step or a sink of this stream fails.

        It applies to the whole stream, from its source or branch; streams derived from it inherit
        it unless they state their own.

        Args:
            policy: `"fail"` (the default), `"skip"` or `dead_letter(topic)`.
        """
        self._refuse_afterthought("on_error")
        return self._next(Node(caller(), (self.node,), policy=policy_of(policy)))

    def branch(
        self,
        branches: Mapping[str, Callable[[V], Any] | str] | None = None,
        *,
        default: str | None = None,
        **more: Callable[[V], Any] | str,
    ) -> dict[str, Stream[K, V]]:
        """Send each record to one named stream: the first whose predicate is true.

        Args:
            branches: predicate on the value by the name of its stream; also as keywords.
            default: name of the stream for the remaining records. None: drop them.
            more: as `branches`.

        Returns:
            The streams by name.
        """
        self._refuse_second_branch()
        wanted = {**(branches or {}), **more}
        streams = {name: self._branch(f, name) for name, f in wanted.items()}
        if default is not None:
            streams[default] = self._branch(None, default)
        return streams

    def split(self, *predicates: Callable[[V], Any] | str) -> tuple[Stream[K, V], ...]:
        """Send each record to the first stream whose predicate is true.

        Returns:
            One stream for each predicate on the value, then the stream of the remaining records.
        """
        self._refuse_second_branch()
        return tuple(self._branch(predicate, None) for predicate in (*predicates, None))

    def to(
        self,
        *targets: str | Callable[[Record[K, V]], str],
        topics: tuple[str, ...] | list[str] = (),
        key: SerdeLike | None = None,
        value: SerdeLike | None = None,
        name: str | None = None,
        partitions: int | None = None,
        retention: DurationLike | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Write the stream to topics.

        Args:
            targets: each a topic, or a function that takes the whole record and returns one.
            topics: that such a function may return; if given, any other topic is an error.
            key: serde of the key. None: the serde of the source.
            value: serde of the value. None: the serde of the source.
            name: of the sink in messages.
            partitions: with which `apply` creates the topics. None: the setting
                `topics.partitions`.
            retention: how long the topics keep records if `apply` creates them. None: the brokers'
                default.
            settings: with which `apply` creates the topics, by Kafka's names.

        Raises:
            TopologyError: no topic is given, or what is stated contradicts itself.
        """
        place = caller()
        if not targets:
            raise TopologyError(f"{place}: to() was given no topic; name at least one")
        for target in targets:
            chosen = None if isinstance(target, str) else self.recording.reference("to", target)
            declared = {
                "topic": target if isinstance(target, str) else None,
                "topic_from": chosen,
                "topics": tuple(topics) if chosen else (),
                "key": None if key is None else self.recording.serde(key),
                "value": None if value is None else self.recording.serde(value),
                "name": name,
                "partitions": partitions,
                "retention": retention,
                "settings": settings or {},
            }
            try:
                sink = SinkSpec.model_validate(declared)
            except ValidationError as error:
                found = message_of(error.errors()[0])
                raise TopologyError(f"{place}: to(): {found}") from error
            self.node.sinks.append((sink, place))

    def to_table(
        self,
        table: str,
        *,
        mode: TableMode = "append",
        keys: str | tuple[str, ...] | list[str] = (),
        row: Callable[[Record[K, V]], Any] | str | None = None,
        model: type[BaseModel] | str | None = None,
        key: SerdeLike | None = None,
        value: SerdeLike | None = None,
        on_error: Literal["fail", "skip", "dead_letter"] | None = None,
        commit: Literal["later", "together"] = "later",
    ) -> None:
        """Write the stream to a table of the database, each record once.

        Several tables of one stream are written in one database transaction per record.

        Args:
            table: its name, with its schema before a dot if it has one.
            mode: `"append"`, `"upsert"`, or `"upsert_delete"`: a null value deletes its row.
            keys: columns that identify a row, for both kinds of upsert.
            row: takes the whole record and returns its row, a list of rows or None; a row is a
                dict or a model. None: the record's value is the row.
            model: pydantic model with the columns, from which `apply` creates the table.
            key: serde of the key in the topic that the table writer reads. None: the source's.
            value: serde of the value in that topic. None: the model's, or the source's.
            on_error: for a row that the database refuses. None: as the stream.
            commit: `"later"`: a table writer fills the table. `"together"`: rows, outputs, state
                and offsets take effect together or not at all.
        """
        place = caller()
        try:
            declared = TableSpec(
                table=table,
                mode=mode,
                keys=(keys,) if isinstance(keys, str) else tuple(keys),
                row=None if row is None else self.recording.reference("row", row),
                model=None if model is None else self.recording.model(model),
                key=None if key is None else self.recording.serde(key),
                value=None if value is None else self.recording.serde(value),
                on_error=on_error,
                commit=commit,
            )
        except ValidationError as error:
            found = message_of(error.errors()[0])
            raise TopologyError(f"{place}: to_table({table!r}): {found}") from error
        self.node.sinks.append((declared, place))

    def _batch(self, operator: str, function: FunctionLike, schema: SchemaLike | None) -> Stream:
        reference = self.recording.reference(operator, function)
        columns = None if schema is None else self.recording.schema(operator, schema)
        return self.declared(operator, {"call": reference, "schema": columns})

    def _call(
        self, operator: str, function: FunctionLike, options: CallOptions
    ) -> Stream[Any, Any]:
        return self.declared(operator, declared_call(self.recording, operator, function, options))

    def _step(self, operator: str, function: FunctionLike) -> Stream:
        return self.declared(operator, self.recording.reference(operator, function))

    def declared(self, operator: str, declared: Any, joined: Node | None = None) -> Stream:
        """Add a step, given as in a topology file."""
        try:
            step = StepSpec.model_validate({operator: declared})
        except ValidationError as error:
            raise TopologyError(f"{caller()}: {first_problem(error)}") from error
        return self._next(Node(caller(), (self.node,), step=step, joined=joined))

    def _next(self, node: Node) -> Stream:
        return Stream(self.recording, self.recording.add(node))

    def _branch(self, predicate: FunctionLike | None, name: str | None) -> Stream:
        if name == DEFAULT_BRANCH:
            raise TopologyError(
                f"{caller()}: a branch cannot be named {DEFAULT_BRANCH!r}; choose another name"
            )
        reference = None if predicate is None else self.recording.reference("branch", predicate)
        node = self.recording.add(Node(caller(), name=name, is_branch=True))
        self.node.branches.append((reference, node))
        return Stream(self.recording, node)

    def _refuse_afterthought(self, call: str) -> None:
        if self.node.children or self.node.sinks or self.node.branches:
            raise TopologyError(
                f"{caller()}: {call}() comes after the stream was used; call it before to(), "
                f"branch() and further steps, and continue with its result"
            )

    def _refuse_second_branch(self) -> None:
        if self.node.branches:
            raise TopologyError(
                f"{caller()}: this stream branches twice; put all predicates into one branch()"
            )
