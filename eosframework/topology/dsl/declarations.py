"""Arguments of the DSL's methods: windows, options of aggregates and stores, error policies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import PurePath
from typing import Any, Literal, Required, TypedDict

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from eosframework.errors import TopologyError
from eosframework.records import Record
from eosframework.serialization import references
from eosframework.serialization.schemas import Registered
from eosframework.serialization.serdes import SerdeLike, serde_of
from eosframework.topology.spec.batch_spec import columns_of
from eosframework.topology.spec.call_spec import RateLike
from eosframework.topology.spec.keyed_spec import DurationLike, WindowSpec
from eosframework.topology.spec.loaded import Place
from eosframework.topology.spec.topology_spec import (
    DeadLetter,
    SinkSpec,
    SourceSpec,
    StepSpec,
    TableSpec,
    check_policy,
)

FunctionLike = Callable[..., Any] | str
"""A function, or its `module:attribute`."""

ValueFunction = Callable[[Any], Any] | str
"""A function of the value, or its `module:attribute`."""

RecordFunction = Callable[[Record], Any] | str
"""A function of the whole record, or its `module:attribute`."""

BinaryFunction = Callable[[Any, Any], Any] | str
"""A function of two arguments, or its `module:attribute`."""

SchemaLike = Mapping[str, str | type] | type[BaseModel] | str | Any
"""Types of columns by name, a pydantic model, a pyarrow.Schema, or the name of one of these."""


@dataclass(eq=False, slots=True)
class Node:
    """One call on a stream.

    Args:
        branches: predicate (None: the remaining records) and first node of each branch.
        source: name of the source, if the node stands for one.
        is_branch: the node stands for the records of a branch.
        joined: the other side of its join.
    """

    place: Place
    parents: tuple[Node, ...] = ()
    step: StepSpec | None = None
    name: str | None = None
    policy: str | DeadLetter | None = None
    children: list[Node] = field(default_factory=list["Node"])
    sinks: list[tuple[SinkSpec | TableSpec, Place]] = field(
        default_factory=list[tuple["SinkSpec | TableSpec", Place]]
    )
    branches: list[tuple[str | None, Node]] = field(default_factory=list[tuple[str | None, "Node"]])
    source: str | None = None
    is_branch: bool = False
    joined: Node | None = None

    @property
    def is_origin(self) -> bool:
        """True if streams start here: at a source or at a branch."""
        return self.source is not None or self.is_branch

    @property
    def path(self) -> str:
        """The calls from the source or branch to this one, for people."""
        calls: list[str] = []
        node: Node | None = self
        while node is not None:
            if node.is_origin:
                calls.append(node.source or f"branch {node.name or 'without a name'}")
            elif node.step is not None:
                calls.append(next(iter(node.step.model_fields_set)))
            elif len(node.parents) > 1:
                calls.append("merge")
            elif node.name is not None:
                calls.append(f"named {node.name}")
            node = node.parents[0] if node.parents else None
        return " -> ".join(reversed(calls))


@dataclass(slots=True)
class Recording:
    """All calls on one topology, with the objects they were given, by name."""

    application: str
    place: Place
    nodes: list[Node] = field(default_factory=list[Node])
    sources: dict[str, SourceSpec] = field(default_factory=dict[str, SourceSpec])
    objects: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, node: Node) -> Node:
        """Record one call."""
        for parent in node.parents:
            parent.children.append(node)
        if node.joined is not None:
            node.joined.children.append(node)
        self.nodes.append(node)
        return node

    def serde(self, wanted: SerdeLike) -> str:
        """Return the name under which the spec refers to a serde."""
        if isinstance(wanted, str):
            return wanted
        if isinstance(wanted, Registered):
            return str(wanted)
        serde = serde_of(wanted)
        return self._remember(serde.name, serde)

    def model(self, wanted: str | type[BaseModel]) -> str:
        """Return the name under which the spec refers to a model."""
        return wanted if isinstance(wanted, str) else self.serde(wanted)

    def schema(self, operator: str, wanted: SchemaLike) -> str | dict[str, str]:
        """Return the columns that a batch operator reads, in the form of the spec.

        Raises:
            TopologyError: `wanted` is not a schema.
        """
        if isinstance(wanted, str):
            return wanted
        try:
            columns = columns_of(wanted)
        except TopologyError as error:
            raise TopologyError(f"{caller()}: {operator}: {error}") from error
        if isinstance(wanted, Mapping):
            return dict(columns.types)
        return self._remember(references.name_of(wanted) or "schema", wanted)

    def reference(self, operator: str, function: Any) -> str:
        """Return the name under which the spec refers to a function."""
        if isinstance(function, str):
            return function
        if not callable(function):
            raise TopologyError(
                f"{caller()}: {operator} was given a {type(function).__name__}: {function!r}; "
                f"expected a function or 'module:function'"
            )
        name = references.name_of(function) or references.place_of(function)
        return self._remember(name, function)

    def _remember(self, name: str, target: Any) -> str:
        unique, count = name, 1
        while self.objects.setdefault(unique, target) != target:
            count += 1
            unique = f"{name}#{count}"
        return unique


_OURS = PurePath(__file__).parent


def caller() -> Place:
    """Return the place in the user's code that called into this package."""
    frame = inspect.currentframe()
    while frame and frame.f_back and PurePath(frame.f_code.co_filename).parent == _OURS:
        frame = frame.f_back
    if frame is None:
        return Place("topology")
    positions = list(frame.f_code.co_positions())
    instruction = frame.f_lasti // 2
    found = positions[instruction] if instruction < len(positions) else (None, None, None, None)
    _, last_line, column, last_column = found
    end = None if last_line is None or last_column is None else (last_line, last_column)
    return Place(frame.f_code.co_filename, frame.f_lineno, (column or 0) + 1, end)


def first_problem(error: ValidationError, whole: str = "") -> str:
    """Return the first problem of a declaration: its option, or `whole`, value and message."""
    detail = error.errors()[0]
    where = ".".join(str(part) for part in detail["loc"]) or whole
    value = detail["input"]
    shown = "" if isinstance(value, Mapping | BaseModel) else f"={value!r}"
    return f"{where}{shown}: {message_of(detail)}"


def message_of(detail: ErrorDetails) -> str:
    """Return the message of a problem; of one that a spec found, without pydantic's prefix."""
    return str(detail.get("ctx", {}).get("error") or detail["msg"])


def plain_name(text: str) -> str:
    """Return `text` as a valid name: every other character is replaced with `_`."""
    lower = text.lower()
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "_" for c in lower)


OnErrorLike = Literal["fail", "skip"] | DeadLetter


class AggregateOptions(TypedDict, total=False):
    """Options of every aggregate."""

    store: str
    """Name of the store. Default: the name of the source, or of the stream or `group_by` that was
    named last, with the operator's: `orders.sum`."""
    value: SerdeLike
    """Serde of the aggregate, in the store and in the results. Default: json."""
    emit: Literal["each", "commit", "close"]
    """When results are sent to the next step. each (the default): with every change; commit: the
    last value of each key or window in a transaction; close: each window once, when it accepts no
    more records."""
    order: Literal["time", "arrival"]
    """The order of records after a repartition topic. time: that of a backfill, so the same input
    gives the same results; each record waits until stream time has passed it. arrival: at once.
    Default: time for sessions and sliding windows with emit="close", else arrival."""
    ttl: DurationLike
    """Lifetime of a value, in stream time. Default: forever."""
    version: int
    """Version of the format of the stored values. Raise it with a change that cannot read older
    values."""
    upgrade: BinaryFunction
    """Takes the bytes of an older value and its version; returns the value of this version."""


class StoreOptions(TypedDict, total=False):
    """Options of a store of `process`."""

    value: SerdeLike
    """Serde of the values. Default: json."""
    key: SerdeLike
    """Serde of the keys. Default: the serde of the records' keys."""
    ttl: DurationLike
    """Lifetime of a value, in stream time. Default: forever."""
    version: int
    """Version of the format of the values. Raise it with a change that cannot read older values."""
    upgrade: BinaryFunction
    """Takes the bytes of an older value and its version; returns the value of this version."""


class CallOptions(TypedDict, total=False):
    """Options of the steps that call a coroutine."""

    concurrency: int
    """The most calls of the step in flight in a worker. Default: 64."""
    order: Literal["input", "key"]
    """input (the default): calls begin in input order, whatever their keys. key: calls of one key
    are serial, and those of other keys overtake them. Results take the order of the input in both
    cases."""
    timeout: DurationLike
    """The longest time of a call; it is cancelled then, and has failed with a TimeoutError.
    Default: 30s."""
    rate: RateLike
    """The most calls in a time, in a worker: a number for each second, or `"100/s"`, `"500/m"`,
    `"1000/h"`. Default: no limit."""
    retry: Sequence[DurationLike] | DurationLike
    """Pauses before further attempts at a call that failed. After the last attempt `on_error`
    applies. Default: one attempt."""
    resources: Mapping[str, FunctionLike]
    """By the name of an argument, the function that opens what the calls share: once for each
    worker, on the event loop. It is closed with the worker."""


class OnceOptions(CallOptions, total=False):
    """Options of the step whose calls take effect once."""

    on_doubt: Required[Literal["retry", "look_up", "dead_letter"]]
    """If a call has begun and its result is unknown: call again, for a service that honours keys;
    ask the service first; or fail the record."""
    look_up: FunctionLike
    """With `on_doubt="look_up"`: takes what the function takes, and returns the result of the
    effect, or None if there is none."""
    key: FunctionLike
    """Takes the value and returns a text, which is added to the key. Default: nothing is added."""
    name: str
    """Name of the step in keys. Default: the name of the function."""
    keep: DurationLike
    """Time for which a result is kept after it was written and its input is committed. Default:
    1m."""


def declared_effect(
    recording: Recording, function: FunctionLike, options: OnceOptions
) -> dict[str, Any]:
    """Return a step whose calls take effect once in the form of a topology file."""
    declared = declared_call(recording, "call_once", function, options)
    for name in ("look_up", "key"):
        if name in declared:
            declared[name] = recording.reference(name, declared[name])
    return declared


def declared_call(
    recording: Recording, operator: str, function: FunctionLike, options: CallOptions
) -> dict[str, Any]:
    """Return a step that calls a coroutine in the form of a topology file."""
    declared: dict[str, Any] = {**options, "call": recording.reference(operator, function)}
    if "resources" in options:
        opened = options["resources"].items()
        declared["resources"] = {n: recording.reference("resources", open_) for n, open_ in opened}
    return declared


def declared_store(recording: Recording, store: SerdeLike | StoreOptions) -> dict[str, Any]:
    """Return a store in the form of a topology file."""
    if not isinstance(store, dict):
        return {"value": recording.serde(store)}
    declared: dict[str, Any] = {**store}
    for name in ("value", "key"):
        if name in declared:
            declared[name] = recording.serde(declared[name])
    if "upgrade" in declared:
        declared["upgrade"] = recording.reference("upgrade", declared["upgrade"])
    return declared


def dead_letter(
    topic: str, *, retry: Sequence[DurationLike] | DurationLike = (), replay: bool = False
) -> DeadLetter:
    """Return the policy that writes a record that cannot be processed to `topic`.

    Args:
        topic: for the record, written in the same transaction as its offset.
        retry: delays before each further attempt, for example `["10s", "1m"]`; later records do
            not wait. The record becomes a dead letter when the last attempt has failed.
        replay: create an internal topic through which dead letters are replayed; with `retry`
            there is one in any case.

    Raises:
        TopologyError: a delay is not a duration.
    """
    policy: dict[str, Any] = {"dead_letter": topic}
    if retry:
        policy["retry"] = (retry,) if isinstance(retry, str | timedelta) else tuple(retry)
    if replay:
        policy["replay"] = True
    try:
        return DeadLetter.model_validate(check_policy(policy))
    except ValueError as error:
        raise TopologyError(f"{caller()}: dead_letter: {error}") from error


def policy_of(policy: Any) -> OnErrorLike | None:
    """Return a policy in the form of the spec.

    Raises:
        TopologyError: it is not a policy.
    """
    if policy is None or isinstance(policy, DeadLetter) or policy in ("fail", "skip"):
        return policy
    raise TopologyError(
        f"{caller()}: on_error was given {policy!r}; expected 'fail', 'skip' or dead_letter(topic)"
    )


def tumbling(
    size: DurationLike | None = None,
    *,
    records: int | None = None,
    zone: str | None = None,
    **parts: float,
) -> WindowSpec:
    """Return windows of one size, one after the other.

    Args:
        size: a timedelta, or as in `"1h"`.
        records: instead of a size: windows of so many records of a key, in their order of arrival.
        zone: for `"1d"`, `"7d"` (weeks from Monday) or other days: the time zone, as
            `"Europe/Berlin"`, from whose midnights windows last, for 23 to 25 hours a day. None:
            windows are aligned to the epoch (UTC).
        parts: arguments of a timedelta, instead of a size: `hours=1`.
    """
    stated = {} if zone is None else {"zone": zone}
    if records is not None:
        return _records({"records": records, **stated}, size, parts)
    return window_of({"tumbling": _duration(size, parts), **stated})


def hopping(size: DurationLike | None = None, *, every: DurationLike, **parts: float) -> WindowSpec:
    """Return windows of one size that overlap.

    Args:
        size: a timedelta, or as in `"1h"`.
        every: from the start of one window to the start of the next.
        parts: arguments of a timedelta, instead of a size: `hours=1`.
    """
    return window_of({"hopping": _duration(size, parts), "every": every})


def sliding(
    size: DurationLike | None = None,
    *,
    records: int | None = None,
    step: int | None = None,
    **parts: float,
) -> WindowSpec:
    """Return a window for every set of records at most `size` apart, as in Kafka Streams.

    Args:
        size: a timedelta, or as in `"5m"`.
        records: instead of a size: the last so many records of a key, in their order of arrival.
        step: with `records`: the records of a key from one window to the next. None: 1.
        parts: arguments of a timedelta, instead of a size: `minutes=5`.
    """
    if records is not None:
        return _records({"records": records, "step": 1 if step is None else step}, size, parts)
    stated = {} if step is None else {"step": step}
    return window_of({"sliding": _duration(size, parts), **stated})


def session(gap: DurationLike | None = None, **parts: float) -> WindowSpec:
    """Return windows of records that are at most `gap` apart from one to the next.

    Args:
        gap: a timedelta, or as in `"30m"`.
        parts: arguments of a timedelta, instead of a gap: `minutes=30`.
    """
    return window_of({"session": _duration(gap, parts)})


def limited(
    window: WindowSpec,
    grace: DurationLike | None,
    late: str | None,
    close_when_idle: DurationLike | None,
) -> WindowSpec:
    """Return windows with the options of `KeyedStream.window`."""
    given = {"grace": grace, "late": late, "close_when_idle": close_when_idle}
    options = {name: value for name, value in given.items() if value is not None}
    return window_of({**window.model_dump(exclude_unset=True), **options})


def window_of(declared: Mapping[str, Any]) -> WindowSpec:
    """Return windows, given as in a topology file.

    Raises:
        TopologyError: the options contradict each other.
    """
    try:
        return WindowSpec.model_validate(declared)
    except ValidationError as error:
        raise TopologyError(f"{caller()}: {first_problem(error, 'window')}") from error


def _records(
    declared: Mapping[str, Any], size: DurationLike | None, parts: Mapping[str, float]
) -> WindowSpec:
    if size is not None or parts:
        raise TopologyError(
            f"{caller()}: a window is of a time or of a number of records, and this one of both; "
            f"leave one out"
        )
    return window_of(declared)


_PARTS = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds")
"""The arguments of a timedelta."""


def _duration(size: DurationLike | None, parts: Mapping[str, float]) -> DurationLike:
    if "records" in parts:
        raise TopologyError(
            f"{caller()}: records is for tumbling and sliding windows: tumbling(records=5) is each "
            f"five records of a key, sliding(records=5, step=2) the last five after each second one"
        )
    if unknown := [name for name in parts if name not in _PARTS]:
        raise TopologyError(
            f"{caller()}: this window has no option {unknown[0]!r}; a size has the parts "
            f"{', '.join(_PARTS)}, and zone is of tumbling windows"
        )
    if (size is None) == (not parts):
        raise TopologyError(
            f"{caller()}: a window has either a size, as in '1h', or parts of one, as in hours=1"
        )
    return timedelta(**parts) if size is None else size
