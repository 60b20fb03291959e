"""What a user wrote, as data: the same whether it came from YAML or from Python.

These models are the shape of a topology file; their descriptions are its JSON Schema. What
takes more than one part to judge is in `lint`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from eosframework.errors import TopologyError
from eosframework.serialization.schemas import OPTIONS, Registered
from eosframework.topology.spec.declared import Declared
from eosframework.topology.spec.durations import Duration, Ttl, duration_of
from eosframework.topology.spec.step_spec import StepSpec

DEFAULT_BRANCH = "default"
"""In a branch, the key whose value names the stream of the records that are left."""


def _listed(names: Any) -> Any:
    return (names,) if isinstance(names, str) else names


class DeadLetter(Declared):
    """Write a record that cannot be processed to a topic, and go on."""

    dead_letter: str = Field(min_length=1)
    """Topic that takes the record, in the same transaction as its offset."""

    retry: Annotated[tuple[Duration, ...], BeforeValidator(_listed)] = ()
    """How long to wait before each further attempt, for example [10s, 1m, 10m]; the record is a
    dead letter when the last one has failed. Records behind it do not wait."""

    replay: bool = False
    """Whether the application has a topic of its own for dead letters that are replayed; with
    retry it has one in any case."""


def check_policy(policy: Any) -> Any:
    """Return what a user wrote as a policy.

    Raises:
        ValueError: it is none; says what was expected.
    """
    if isinstance(policy, DeadLetter) or policy in ("fail", "skip"):
        return policy
    if policy == "dead_letter" or policy in ({"dead_letter": None}, {"dead_letter": ""}):
        raise ValueError("dead_letter has no topic; expected {dead_letter: TOPIC}")
    if isinstance(policy, dict):
        given = cast(dict[Any, Any], policy)
        if "retry" in given and "dead_letter" not in given:
            raise ValueError(
                "retry has no dead_letter, where a record goes that fails each time; expected "
                "{retry: [10s, 1m], dead_letter: TOPIC}"
            )
        fields = DeadLetter.model_fields.keys()
        if isinstance(given.get("dead_letter"), str) and set(given) <= fields:
            _check_delays(given.get("retry", ()))
            return given
    raise ValueError(f"{policy!r} is no policy; expected fail, skip or {{dead_letter: TOPIC}}")


def _check_delays(delays: Any) -> None:
    listed = _listed(delays)
    if not isinstance(listed, list | tuple):
        raise ValueError(f"retry: {delays!r} is no list of durations; expected [10s, 1m]")
    for delay in cast("list[Any]", listed):
        if not duration_of(delay):
            raise ValueError("retry: 0 does not wait; expected more, for example 10s")


def _sinks(sinks: Any) -> Any:
    if isinstance(sinks, str | Mapping | SinkSpec | TableSpec):
        sinks = [sinks]
    if not isinstance(sinks, list | tuple):
        return sinks
    return [{"topic": s} if isinstance(s, str) else s for s in cast(list[Any], sinks)]


Policy = Annotated[Literal["fail", "skip"] | DeadLetter, BeforeValidator(check_policy)]
"""What happens with a record that cannot be processed."""


def _written_serde(serde: Any) -> Any:
    """Return a serde that is declared as a map as what the map is written as."""
    if not isinstance(serde, Mapping):
        return serde
    declared = list(cast("Mapping[Any, Any]", serde).items())
    if len(declared) != 1:
        raise ValueError(f"a serde has one format, for example avro; found {len(declared)}")
    [(name, options)] = declared
    try:
        return str(Registered.make(str(name), options))
    except TopologyError as error:
        raise ValueError(str(error)) from error


_SERDE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        *(
            {
                "type": "object",
                "properties": {
                    str(format_): {
                        "type": "object",
                        "properties": {name: {"type": "string"} for name in options},
                        "additionalProperties": False,
                    }
                },
                "required": [str(format_)],
                "additionalProperties": False,
            }
            for format_, options in OPTIONS.items()
        ),
    ]
}

SerdeName = Annotated[str, BeforeValidator(_written_serde), WithJsonSchema(_SERDE_SCHEMA)]
"""A serde by its name, or a map of its options under the name of its format."""

_FROM_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
}


class SourceSpec(Declared):
    """A topic that is read."""

    topic: str
    """Name of the topic."""

    key: SerdeName = "bytes"
    """Serde of the key: bytes, string, integer, float, json, module:Model, or a map: avro,
    json_schema or protobuf with its options."""

    value: SerdeName = "bytes"
    """Serde of the value, likewise."""

    timestamp: str | None = None
    """module:function that takes the value and returns the event time, as milliseconds since
    the epoch or a datetime. Default, and for null values: the record's own timestamp."""

    on_error: Policy | None = None
    """For records that do not decode: fail, skip, or {dead_letter: TOPIC}. Default: that of the
    first stream that reads this source."""

    table: bool = False
    """Whether each record is the new row of its key (a null value deletes it), so that streams can
    be joined with the rows."""

    history: Duration | None = None
    """For a table: how far back its rows are known. A stream that is joined with it finds the row
    that was current at each record's time."""

    ttl: Ttl = None
    """For a table: how long a row counts; it is absent once stream time is further than this past
    its own time. Default: until it is replaced or deleted."""

    global_: bool = Field(default=False, alias="global")
    """Whether every process reads the whole topic into memory, to join with its rows by any key."""

    name: str | None = None
    """Name of the sub-topology that this source belongs to, part of its transactional ids.
    Default: the name of its first declared stream."""

    @model_validator(mode="after")
    def _ttl_fits(self) -> Self:
        if self.ttl is None:
            return self
        if self.global_:
            raise ValueError(
                "ttl is for the rows of tasks, which have a time; a global table has none. Leave "
                "ttl out, or leave out global and join by the record's key"
            )
        if self.history is not None:
            raise ValueError(
                "ttl is for tables without history, whose current rows stay current until they "
                "change; leave out ttl, or history"
            )
        if not self.table:
            raise ValueError("ttl is for the rows of a table; state table: true as well")
        return self

    @property
    def is_table(self) -> bool:
        """Whether its rows are kept."""
        return self.table or self.history is not None


class SinkSpec(Declared):
    """Where a stream goes: a topic, or one that a function chooses for each record."""

    topic: str | None = None
    """Name of the topic."""

    topic_from: str | None = None
    """module:function that takes the whole record and returns the topic's name."""

    topics: tuple[str, ...] = ()
    """Topics that topic_from can choose. Where given, it can choose no other."""

    key: SerdeName | None = None
    """Serde of the key. Default: that of the source."""

    value: SerdeName | None = None
    """Serde of the value. Default: that of the source."""

    name: str | None = None
    """Name in messages. Default: the topic, or the function that chooses it."""

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.topic is None) == (self.topic_from is None):
            raise ValueError("a sink has either a topic or topic_from; expected exactly one")
        if self.topics and self.topic_from is None:
            raise ValueError("topics goes with topic_from; list several sinks instead")
        return self

    @property
    def label(self) -> str:
        """What the sink goes by in messages."""
        return self.name or self.topic or f"{self.topic_from}"


TableMode = Literal["append", "upsert", "upsert_delete"]
"""How rows enter a table: one more row each; the newest for each key; the same, and a null value
deletes the row of its key."""


class TableSpec(Declared):
    """A table of the database that a stream goes to."""

    table: str = Field(pattern=r"^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)?$")
    """Name of the table, with its schema before a dot where that is not the first of the
    search path."""

    mode: TableMode = "append"
    """append, upsert, or upsert_delete."""

    keys: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """Columns that tell rows apart, for both kinds of upsert. For upsert_delete the record's key
    gives them: a map or model by name, any other value as the only one."""

    row: str | None = None
    """module:function that takes the whole record and returns its row, a list of rows, or None
    for no row; a row is a map or a model. Default: the record's value. It may run again: it must
    give the same rows for the same record."""

    model: str | None = None
    """module:Model with the columns, from which `apply` creates the table. Default: the model of
    the record's value, where it has one and there is no `row`."""

    key: str | None = None
    """Serde of the key on the way to the database, where the rows pass through a topic.
    Default: that of the source."""

    value: str | None = None
    """Serde of the value on the way to the database, where the rows pass through a topic.
    Default: that of the source; json where a step made the value."""

    on_error: Literal["fail", "skip", "dead_letter"] | None = None
    """For a row that the database refuses: fail, skip, or dead_letter, the table of refused rows.
    Default: that of the stream."""

    @model_validator(mode="after")
    def _keys_fit_the_mode(self) -> Self:
        if self.mode == "append" and self.keys:
            raise ValueError("mode append has no use for keys; leave them out, or use upsert")
        if self.mode != "append" and not self.keys:
            raise ValueError(f"mode {self.mode} needs keys: the columns that tell rows apart")
        return self

    @property
    def label(self) -> str:
        """What the table goes by in messages."""
        return self.table


TOPIC_TAG, TABLE_TAG = "<topic>", "<table>"
"""Parts of the places of findings that no file has."""


def _tag(sink: Any) -> str:
    is_table = isinstance(sink, TableSpec) or (isinstance(sink, Mapping) and "table" in sink)
    return TABLE_TAG if is_table else TOPIC_TAG


AnySink = Annotated[
    Annotated[SinkSpec, Tag(TOPIC_TAG)] | Annotated[TableSpec, Tag(TABLE_TAG)], Discriminator(_tag)
]


class StreamSpec(Declared):
    """Records on their way from sources or other streams through steps to topics."""

    from_: Annotated[
        tuple[str, ...],
        BeforeValidator(_listed),
        Field(min_length=1, alias="from"),
        WithJsonSchema(_FROM_SCHEMA),
    ]
    """Source, stream or branch that it reads; several are merged."""

    steps: tuple[StepSpec, ...] = ()
    """Operators in order."""

    branch: dict[str, str] = Field(default_factory=dict)
    """Streams that each record goes on to, by name: the first whose module:function is true
    for the value takes it. The key `default` names the stream of those that are left;
    without it they are dropped."""

    on_error: Policy | None = None
    """For a record for which a step or a sink fails: fail, skip, or {dead_letter: TOPIC}.
    Default: that of the stream it reads, of several the first that has one, else fail."""

    to: Annotated[tuple[AnySink, ...], BeforeValidator(_sinks)] = ()
    """Topics and tables that the records are written to."""

    @property
    def sinks(self) -> list[tuple[int, SinkSpec]]:
        """The topics, each with its place in `to`."""
        return [(i, sink) for i, sink in enumerate(self.to) if isinstance(sink, SinkSpec)]

    @property
    def tables(self) -> list[tuple[int, TableSpec]]:
        """The tables, each with its place in `to`."""
        return [(i, sink) for i, sink in enumerate(self.to) if isinstance(sink, TableSpec)]

    @property
    def joined(self) -> list[tuple[int, str]]:
        """What it is joined with, each with the place of the step."""
        return [(i, step.join.with_) for i, step in enumerate(self.steps) if step.join is not None]

    @property
    def is_source(self) -> bool:
        """Whether its records are those of one source as they are, if it reads a source."""
        return len(self.from_) == 1 and not self.steps

    @property
    def predicates(self) -> dict[str, str]:
        """The branches that have a predicate, in order."""
        return {name: f for name, f in self.branch.items() if name != DEFAULT_BRANCH}

    @property
    def branch_names(self) -> tuple[str, ...]:
        """Names of all branches, in order; the default last."""
        default = self.branch.get(DEFAULT_BRANCH)
        return (*self.predicates, *((default,) if default is not None else ()))


class TopologySpec(Declared):
    """A whole application, as a user declared it."""

    application: str
    """Name of the application: its consumer group and the start of its transactional ids.
    Lower-case letters, digits, '_', '.' and '-'; the first is a letter or a digit."""

    sources: dict[str, SourceSpec]
    """Topics that are read, by the name that streams refer to."""

    streams: dict[str, StreamSpec]
    """Streams by name."""
