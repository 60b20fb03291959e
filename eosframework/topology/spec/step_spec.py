"""The declaration of the steps of a stream: one operator each, with its options."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from eosframework.topology.spec.batch_spec import BatchSpec
from eosframework.topology.spec.call_spec import BatchCallSpec, CallSpec
from eosframework.topology.spec.cogroup_spec import CogroupSpec
from eosframework.topology.spec.join_spec import JoinSpec
from eosframework.topology.spec.keyed_spec import (
    AggregateSpec,
    CountSpec,
    Declared,
    DeduplicateSpec,
    Duration,
    KeyedSpec,
    OfSpec,
    Order,
    ReduceSpec,
    StoredSpec,
    Ttl,
)
from eosframework.topology.spec.list_spec import DistinctSpec, RankedSpec
from eosframework.topology.spec.once_spec import OnceSpec

OPERATORS = (
    "filter",
    "map_values",
    "flat_map_values",
    "peek",
    "select_key",
    "map",
    "flat_map",
    "process",
    "group_by",
    "count",
    "sum",
    "min",
    "max",
    "reduce",
    "aggregate",
    "cogroup",
    "top",
    "bottom",
    "distinct",
    "deduplicate",
    "join",
    "map_batch",
    "filter_batch",
    "map_async",
    "filter_async",
    "for_each_async",
    "map_batch_async",
    "call_once",
)
"""Operators that a step can name."""

CALLS = ("map_async", "filter_async", "for_each_async", "map_batch_async", "call_once")
"""Operators that call a function ahead of the transaction."""

SIDE_EFFECTS = ("peek", "process", "for_each_async", "call_once")
"""Operators with side effects, which may be the last step of a stream without sinks."""


class GroupSpec(Declared):
    """Give records a new key, and bring records of the same key into the same task.

    The records pass through a repartition topic.
    """

    by: str
    """module:function that takes the whole record and returns the new key."""

    key: str | None = None
    """Serde of the new key. Default: the serde of the previous key."""

    value: str | None = None
    """Serde of the value in the repartition topic. Default: the serde of the source; json if a step
    produced the value."""

    partitions: int | None = Field(default=None, ge=1)
    """Partitions of the repartition topic. Default: as many as the source has."""

    name: str | None = None
    """Name of the repartition topic, and start of the names of the stores after it. Default: the
    stream's name."""


class ProcessStoreSpec(Declared):
    """A store of a `process` step."""

    value: str = "json"
    """Serde of the values."""

    key: str | None = None
    """Serde of the keys. Default: the serde of the records' keys."""

    version: int = Field(default=1, ge=1, le=255)
    """Version of the format of the values, 1 to 255. Raise it with a change that cannot read older
    values."""

    upgrade: str | None = None
    """module:function that takes the bytes of an older value and its version, and returns the value
    of this version."""

    ttl: Ttl = None
    """Lifetime of a value: it is absent once stream time is more than this past the time of the
    record that put it. Default: forever."""


def _at_least_a_millisecond(interval: timedelta) -> timedelta:
    if interval < timedelta(milliseconds=1):
        raise ValueError("every: is shorter than 1ms; expected a longer interval, as in 10s")
    return interval


class ProcessSpec(Declared):
    """Call a function with each record, with its own stores and timers."""

    call: str | None = None
    """module:function that takes the whole record and a context, and returns records or None.
    Without it, records end here: `every` alone calls a function."""

    stores: dict[str, ProcessStoreSpec | None] = Field(default_factory=dict)
    """Stores by the names that the function uses: context.store(NAME)."""

    on_timer: str | None = None
    """module:function that takes key, time and context when a timer is due that the function set
    with context.set_timer(…), and returns records or None."""

    on_wall_timer: str | None = None
    """module:function that takes key, time and context when the wall clock reaches a time that the
    function set with context.set_timer(…, clock="wall"), and returns records or None."""

    every: Annotated[Duration, AfterValidator(_at_least_a_millisecond)] | None = None
    """Interval of the wall clock at which `on_every` is called, at the multiples of it since the
    epoch (UTC). After a pause it is called once, not once for each missed time."""

    on_every: str | None = None
    """module:function that takes the time and a context, and returns records or None."""

    per: Literal["task", "application"] = "task"
    """The tasks that call `on_every`. task: each one. application: the task of partition 0."""

    order: Literal["time", "arrival"] | None = None
    """The order of records after a repartition topic. time: that of a backfill, so the same input
    gives the same results; each record waits until stream time has passed it. arrival: at once.
    Default: time with on_timer, else arrival."""

    name: str | None = None
    """Start of the names of its stores. Default: the stream's name, or that of the group_by before
    it."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.every is None) != (self.on_every is None):
            given, missing = ("every", "on_every") if self.every else ("on_every", "every")
            raise ValueError(
                f"{given} is stated without {missing}; every: 10s says when, and on_every: "
                f"module:function what is called"
            )
        if self.per == "application" and self.every is None:
            raise ValueError("per: application is stated without every:; leave it out")
        if self.call is None and self.every is None:
            raise ValueError("call is missing: module:function that takes a record and a context")
        return self

    @property
    def records_order(self) -> Order:
        """The order in which the function gets its records."""
        return Order(self.order or ("arrival" if self.on_timer is None else "time"))

    @property
    def shown(self) -> str:
        """The function that names the step: `call`, or else `on_every`."""
        return self.call or str(self.on_every)

    @property
    def timed_stores(self) -> tuple[str, ...]:
        """The last parts of the names of the stores with due times."""
        kept = {
            "timers": self.on_timer,
            "wall_timers": self.on_wall_timer,
            "every": self.on_every,
        }
        return tuple(name for name, function in kept.items() if function is not None)

    @property
    def declared_stores(self) -> dict[str, ProcessStoreSpec]:
        """The stores; one that was declared without options has the defaults."""
        return {name: store or ProcessStoreSpec() for name, store in self.stores.items()}

    @property
    def functions(self) -> dict[tuple[str, ...], str]:
        """References to all functions of the step, by their path within it."""
        named = {
            "call": self.call,
            "on_timer": self.on_timer,
            "on_wall_timer": self.on_wall_timer,
            "on_every": self.on_every,
        }
        found: dict[tuple[str, ...], str] = {(n,): f for n, f in named.items() if f is not None}
        for name, store in self.declared_stores.items():
            if store.upgrade is not None:
                found["stores", name, "upgrade"] = store.upgrade
        return found


def _place_in(role: str) -> tuple[str, ...]:
    """Return the path of a function of a `cogroup`: that of `add 1` is `add`, `1`."""
    return tuple(role.split(" "))


def _short_for(field: str, *kinds: type) -> Callable[[Any], Any]:
    return lambda given: {field: given} if isinstance(given, kinds) else given


GroupLike = Annotated[
    GroupSpec, BeforeValidator(_short_for("by", str), json_schema_input_type=str | GroupSpec)
]
OfLike = Annotated[
    OfSpec, BeforeValidator(_short_for("of", str), json_schema_input_type=str | OfSpec)
]
ReduceLike = Annotated[
    ReduceSpec, BeforeValidator(_short_for("add", str), json_schema_input_type=str | ReduceSpec)
]
DeduplicateLike = Annotated[
    DeduplicateSpec,
    BeforeValidator(
        _short_for("within", str, timedelta), json_schema_input_type=str | DeduplicateSpec
    ),
]
BatchLike = Annotated[
    BatchSpec, BeforeValidator(_short_for("call", str), json_schema_input_type=str | BatchSpec)
]
CallLike = Annotated[
    CallSpec, BeforeValidator(_short_for("call", str), json_schema_input_type=str | CallSpec)
]
BatchCallLike = Annotated[
    BatchCallSpec,
    BeforeValidator(_short_for("call", str), json_schema_input_type=str | BatchCallSpec),
]
"""The short form of each: one text, if no other option is needed."""


class StepSpec(Declared):
    """One operator with its function, as `filter: module:function`."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    filter: str | None = None
    """Keep the records for whose value the function returns true."""

    map_values: str | None = None
    """Replace the value with the function's result."""

    flat_map_values: str | None = None
    """Replace the record with one record for each value that the function returns."""

    peek: str | None = None
    """Call the function with the value and pass the record on unchanged."""

    select_key: str | None = None
    """Replace the key with the function's result for the whole record."""

    map: str | None = None
    """Replace the record with the function's result: a Record or (key, value)."""

    flat_map: str | None = None
    """Replace the record with each Record or (key, value) that the function returns."""

    process: ProcessSpec | str | None = None
    """Call the function with the whole record and pass on the records that it returns, if any; or a
    map, for a function with stores and timers."""

    group_by: GroupLike | None = None
    """Give records a new key and bring records of the same key together: module:function of the
    whole record, or a map."""

    count: CountSpec | None = None
    """Count the records of each key."""

    sum: OfLike | None = None
    """Add up the function's results for the values of each key."""

    min: OfLike | None = None
    """Keep the smallest of the function's results for the values of each key."""

    max: OfLike | None = None
    """Keep the greatest of the function's results for the values of each key."""

    reduce: ReduceLike | None = None
    """Fold the values of each key with a function, starting with the first value."""

    aggregate: AggregateSpec | None = None
    """Fold the values of each key with a function, starting with an initial aggregate."""

    cogroup: CogroupSpec | None = None
    """Fold the values of the streams of from:, each with its own function, into one aggregate for
    each key; the first step of its stream."""

    top: RankedSpec | None = None
    """Keep the values of each key with the greatest results of a function, the greatest first."""

    bottom: RankedSpec | None = None
    """Keep the values of each key with the smallest results of a function, the smallest first."""

    distinct: DistinctSpec | None = None
    """List the different results of a function for the values of each key, in their order."""

    deduplicate: DeduplicateLike | None = None
    """Pass on the first record of each key within a time, and drop its duplicates."""

    join: JoinSpec | None = None
    """Join each record with the row of a table, or with records of another stream."""

    map_batch: BatchLike | None = None
    """Replace the values of a batch of records with the columns that the function returns."""

    filter_batch: BatchLike | None = None
    """Keep the records of a batch for which the function's array of booleans is true."""

    map_async: CallLike | None = None
    """Replace the value with the result of a coroutine."""

    filter_async: CallLike | None = None
    """Keep the records for whose value the coroutine returns true."""

    for_each_async: CallLike | None = None
    """Call the coroutine with the value and pass the record on unchanged."""

    call_once: OnceSpec | None = None
    """Replace the value with the result of a call whose effect, outside of Kafka, must not
    repeat."""

    map_batch_async: BatchCallLike | None = None
    """Replace the values of several records with the list that the coroutine returns for theirs."""

    @model_validator(mode="after")
    def _one_operator(self) -> Self:
        if len(self._given()) != 1:
            raise ValueError(
                f"a step names exactly one operator, this one {len(self._given())}; expected one "
                f"of {', '.join(OPERATORS)}, each as its own list item"
            )
        return self

    def _given(self) -> list[str]:
        return [name for name in OPERATORS if getattr(self, name) is not None]

    @property
    def operator(self) -> str:
        """Name of the operator."""
        return self._given()[0]

    @property
    def function(self) -> str:
        """Reference to the function; for a keyed operator, the text that messages show for it."""
        declared = getattr(self, self.operator)
        match declared:
            case GroupSpec():
                return declared.by
            case ProcessSpec():
                return declared.shown
            case BatchSpec() | CallSpec():
                return declared.call
            case JoinSpec():
                return f"{declared.with_}, {declared.by}"
            case StoredSpec():
                return ", ".join(declared.functions.values())
            case _:
                return declared

    @property
    def keyed(self) -> StoredSpec | None:
        """The declaration, if the step stores an entry for each key."""
        declared = getattr(self, self.operator)
        return declared if isinstance(declared, StoredSpec) else None

    @property
    def handler(self) -> ProcessSpec | None:
        """The declaration, if the step is a `process` with stores or timers."""
        return self.process if isinstance(self.process, ProcessSpec) else None

    @property
    def batch(self) -> BatchSpec | None:
        """The declaration, if the step works on batches of records."""
        return self.map_batch or self.filter_batch

    @property
    def calls(self) -> CallSpec | None:
        """The declaration, if the step calls a coroutine."""
        found = self.map_async or self.filter_async or self.for_each_async
        return found or self.map_batch_async or self.call_once

    @property
    def needs_key(self) -> bool:
        """True if all records of a key have to be in one task."""
        if self.handler is not None:
            return self.handler.call is not None
        return self.keyed is not None

    @property
    def is_named(self) -> bool:
        """True if the step states the name of what it keeps."""
        match declared := getattr(self, self.operator):
            case StoredSpec() | JoinSpec():
                return declared.store is not None
            case GroupSpec() | ProcessSpec():
                return declared.name is not None
            case _:
                return False

    def with_option(self, name: str, value: str) -> StepSpec:
        """Return the step with an option of its operator stated."""
        declared = getattr(self, self.operator).model_copy(update={name: value})
        return self.model_copy(update={self.operator: declared})

    @property
    def aggregates(self) -> KeyedSpec | None:
        """The declaration, if the step folds the values of each key."""
        declared = getattr(self, self.operator)
        return declared if isinstance(declared, KeyedSpec) else None

    @property
    def refuses_changes(self) -> bool:
        """True if the step cannot take an earlier record of its key back."""
        return self.ranked is not None or self.distinct is not None or self.cogroup is not None

    @property
    def ranked(self) -> RankedSpec | None:
        """The declaration, if the step keeps values of each key in an order."""
        return self.top or self.bottom

    @property
    def functions(self) -> dict[tuple[str, ...], str]:
        """References to all functions of the step, by their path within it."""
        operator = self.operator
        declared = getattr(self, operator)
        match declared:
            case GroupSpec():
                return {(operator, "by"): declared.by}
            case ProcessSpec() | CallSpec():
                return {(operator, *place): f for place, f in declared.functions.items()}
            case BatchSpec():
                return {(operator, "call"): declared.call}
            case JoinSpec():
                return {(operator, name): f for name, f in declared.functions.items()}
            case CogroupSpec():
                listed = declared.all_functions.items()
                return {(operator, *_place_in(name)): function for name, function in listed}
            case StoredSpec():
                return {(operator, name): f for name, f in declared.all_functions.items()}
            case _:
                return {(operator,): declared}
