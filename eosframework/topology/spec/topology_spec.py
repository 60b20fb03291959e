"""The declaration of a topology: sources, streams and sinks, as data.

These models are the format of a topology file; their descriptions become its JSON Schema. Checks
that need more than one part are in `lint`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from eosframework.errors import TopologyError
from eosframework.serialization.schemas import OPTIONS, Registered
from eosframework.topology.spec.keyed_spec import Declared, Duration, Ttl, duration_of, milliseconds
from eosframework.topology.spec.step_spec import StepSpec
from eosframework.txnid import reserved_topic

_PATTERN = r'^(?:[A-Za-z_]\w*|"(?:[^"]|"")+")(?:\.(?:[A-Za-z_]\w*|"(?:[^"]|"")+"))?$'
"""A name, with its schema before a dot. A part in double quotes may have any character."""

_PART = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')
_SAFE = re.compile(r"[^A-Za-z0-9._-]")


def relation_parts(name: str) -> tuple[str, ...]:
    """Return the table's name, after its schema if there is one, without quotes.

    Case is kept, with and without quotes.
    """
    return tuple(quoted.replace('""', '"') or plain for quoted, plain in _PART.findall(name))


def extended(name: str, ending: str) -> str:
    """Return a table's name with an ending."""
    return f'{name[:-1]}{ending}"' if name.endswith('"') else f"{name}{ending}"


def as_topic(name: str) -> str:
    """Return a table's name in the characters that a topic may have."""
    return _SAFE.sub("_", ".".join(relation_parts(name)))


DEFAULT_BRANCH = "default"
"""In `branch`, the key whose value names the stream for the remaining records."""


def _listed(names: Any) -> Any:
    return (names,) if isinstance(names, str) else names


class DeadLetter(Declared):
    """Write a record that cannot be processed to a dead-letter topic, and continue."""

    dead_letter: str = Field(min_length=1)
    """Topic for the record, written in the same transaction as its offset."""

    retry: Annotated[tuple[Duration, ...], BeforeValidator(_listed)] = ()
    """Delays before each further attempt, for example [10s, 1m, 10m]; after the last one has
    failed, the record becomes a dead letter. Later records do not wait."""

    replay: bool = False
    """Create an internal topic through which dead letters are replayed; with retry there is one in
    any case."""


def check_policy(policy: Any) -> Any:
    """Return a policy as a user wrote it, after checking it.

    Raises:
        ValueError: it is not a policy; the message says what was expected.
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
"""The treatment of a record that cannot be processed."""


def _written_serde(serde: Any) -> Any:
    """Return the text form of a serde that is declared as a map."""
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
"""A serde by name, or a map of its options under the name of its format."""

_FROM_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
}


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern reads a topic: internal topics of applications never match."""
    return re.fullmatch(pattern, topic) is not None and reserved_topic(topic) is None


class SourceSpec(Declared):
    """A topic that the application reads."""

    topic: str
    """Name of the topic."""

    pattern: str | None = None
    """In place of topic: a regular expression. Every topic whose whole name it matches is read,
    also one that is created later."""

    key: SerdeName = "bytes"
    """Serde of the key: bytes, string, integer, float, json, module:Model, or a map: avro,
    json_schema or protobuf with its options."""

    value: SerdeName = "bytes"
    """Serde of the value, as for the key."""

    timestamp: str | None = None
    """module:function that takes the value and returns the event time, as milliseconds since the
    epoch or a datetime. Default, and for null values: the record's timestamp."""

    on_error: Policy | None = None
    """For records that cannot be decoded: fail, skip, or {dead_letter: TOPIC}. Default: the policy
    of the first stream that reads this source."""

    table: bool = False
    """Read the topic as a table: each record is the new row of its key (a null value deletes it),
    and streams can be joined with the rows."""

    history: Duration | None = None
    """For a table: how long earlier versions of its rows are kept. A stream that is joined with it
    finds the row that was current at each record's time."""

    ttl: Ttl = None
    """For a table: lifetime of a row; it is absent once stream time is more than this past the
    row's own time. Default: until it is replaced or deleted."""

    global_: bool = Field(default=False, alias="global")
    """Read the topic as a global table: every process keeps all its rows in memory, and streams can
    be joined with them by any key."""

    name: str | None = None
    """Name of the sub-topology that this source belongs to, part of its transactional ids.
    Default: the name of its first declared stream."""

    @model_validator(mode="before")
    @classmethod
    def _topic_or_pattern(cls, data: Any) -> Any:
        """Give a source with a pattern a topic that no cluster can have: `/PATTERN/`."""
        if not isinstance(data, Mapping):
            return data
        given = dict(cast("Mapping[str, Any]", data))
        if (pattern := given.get("pattern")) is None:
            return given
        if given.setdefault("topic", f"/{pattern}/") != f"/{pattern}/":
            raise ValueError("a source has either a topic or a pattern; leave one of them out")
        return given

    @field_validator("pattern")
    @classmethod
    def _is_regular_expression(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(
                f"{pattern!r} is no regular expression ({error}); expected one of Python's, for "
                f"example orders\\..*"
            ) from error
        if pattern == "":
            raise ValueError("the pattern is empty and matches no topic; state one, or a topic")
        return pattern

    @model_validator(mode="after")
    def _table_has_one_topic(self) -> Self:
        if self.pattern is not None and (self.is_table or self.global_):
            raise ValueError(
                "a table is one topic, and a pattern may match several; state its topic"
            )
        return self

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
        """True if the rows of the topic are kept."""
        return self.table or self.history is not None


class SinkSpec(Declared):
    """A sink: a topic, or a function that chooses the topic of each record."""

    topic: str | None = None
    """Name of the topic."""

    topic_from: str | None = None
    """module:function that takes the whole record and returns the name of its topic."""

    topics: tuple[str, ...] = ()
    """Topics that topic_from may return. If given, any other topic is an error."""

    key: SerdeName | None = None
    """Serde of the key. Default: the serde of the source."""

    value: SerdeName | None = None
    """Serde of the value. Default: the serde of the source."""

    name: str | None = None
    """Name in messages. Default: the topic, or the function that chooses it."""

    partitions: Annotated[int, Field(gt=0)] | None = None
    """Partitions with which apply creates the topic. Default: the setting topics.partitions."""

    retention: Duration | None = None
    """How long the topic keeps records, retention.ms, if apply creates it. Default: the brokers'.
    """

    settings: Mapping[str, str] = {}
    """Settings with which apply creates the topic, by Kafka's names: {cleanup.policy: compact}."""

    @property
    def creation(self) -> tuple[int | None, Mapping[str, str]]:
        """Number of partitions and settings with which the topic is created."""
        kept = {} if self.retention is None else {"retention.ms": f"{milliseconds(self.retention)}"}
        return self.partitions, {**self.settings, **kept}

    @model_validator(mode="after")
    def _topic_is_created(self) -> Self:
        if self.topic is None and self.creation != (None, {}):
            raise ValueError(
                "partitions, retention and settings go with topic: apply creates no topic that a "
                "function chooses"
            )
        if self.retention is not None and "retention.ms" in self.settings:
            raise ValueError("retention and settings both state retention.ms; remove one of them")
        return self

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.topic is None) == (self.topic_from is None):
            raise ValueError("a sink has either a topic or topic_from; expected exactly one")
        if self.topics and self.topic_from is None:
            raise ValueError("topics goes with topic_from; list several sinks instead")
        return self

    @property
    def label(self) -> str:
        """Name of the sink in messages."""
        return self.name or self.topic or f"{self.topic_from}"


TableMode = Literal["append", "upsert", "upsert_delete"]
"""The way rows are written. append: insert each row; upsert: keep the newest row of each key;
upsert_delete: likewise, and a null value deletes the row of its key."""


class TableSpec(Declared):
    """A table sink: a database table that the records of a stream are written to."""

    table: str = Field(pattern=_PATTERN)
    """Name of the table, with its schema before a dot unless that is the first one of the search
    path. Case is kept; a part in double quotes may have any character: `shop."order lines"`."""

    mode: TableMode = "append"
    """append, upsert, or upsert_delete."""

    keys: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """Columns that identify a row, for upsert and upsert_delete. For upsert_delete the record's key
    holds them: a map or model by name, any other value as the only column."""

    row: str | None = None
    """module:function that takes the whole record and returns its row, a list of rows, or None for
    no row; a row is a map or a model. Default: the record's value. It may run again: it must return
    the same rows for the same record."""

    model: str | None = None
    """module:Model with the columns, from which `apply` creates the table. Default: the model of
    the record's value, if it has one and there is no `row`."""

    key: str | None = None
    """Serde of the key in the topic that the table writer reads, if there is one. Default: the
    serde of the source."""

    value: str | None = None
    """Serde of the value in the topic that the table writer reads, if there is one. Default: the
    serde of the source; json if a step produced the value."""

    on_error: Literal["fail", "skip", "dead_letter"] | None = None
    """For a row that the database refuses: fail, skip, or dead_letter, the table of refused rows.
    Default: the policy of the stream."""

    commit: Literal["later", "together"] = "later"
    """later: a table writer reads the rows from a topic. together: rows, outputs, state and offsets
    are one decision, which the database makes."""

    @model_validator(mode="after")
    def _keys_fit_the_mode(self) -> Self:
        if self.mode == "append" and self.keys:
            raise ValueError("mode append has no use for keys; leave them out, or use upsert")
        if self.mode != "append" and not self.keys:
            raise ValueError(f"mode {self.mode} needs keys: the columns that tell rows apart")
        return self

    @model_validator(mode="after")
    def _refused_rows_are_refused_records(self) -> Self:
        if self.commit == "together" and self.on_error is not None:
            raise ValueError(
                "with commit: together a row that the database refuses is an error of its record; "
                "state on_error at the stream"
            )
        return self

    @property
    def label(self) -> str:
        """Name of the table in messages."""
        return self.table


TOPIC_TAG, TABLE_TAG = "<topic>", "<table>"
"""Parts of a location in pydantic's errors that are not in the file."""


def _tag(sink: Any) -> str:
    is_table = isinstance(sink, TableSpec) or (isinstance(sink, Mapping) and "table" in sink)
    return TABLE_TAG if is_table else TOPIC_TAG


AnySink = Annotated[
    Annotated[SinkSpec, Tag(TOPIC_TAG)] | Annotated[TableSpec, Tag(TABLE_TAG)], Discriminator(_tag)
]


class StreamSpec(Declared):
    """Records from sources or other streams, processed by steps and written to sinks."""

    from_: Annotated[
        tuple[str, ...],
        BeforeValidator(_listed),
        Field(min_length=1, alias="from"),
        WithJsonSchema(_FROM_SCHEMA),
    ]
    """Source, stream or branch to read; several are merged."""

    steps: tuple[StepSpec, ...] = ()
    """Operators, in order."""

    branch: dict[str, str] = Field(default_factory=dict)
    """Streams that the records are distributed to, by name: each record goes to the first one whose
    module:function returns true for its value. The key `default` names the stream for the remaining
    records; without it they are dropped."""

    on_error: Policy | None = None
    """For a record for which a step or a sink fails: fail, skip, or {dead_letter: TOPIC}. Default:
    the policy of the stream it reads, of several the first that has one, else fail."""

    to: Annotated[tuple[AnySink, ...], BeforeValidator(_sinks)] = ()
    """Topics and tables that the records are written to."""

    @property
    def sinks(self) -> list[tuple[int, SinkSpec]]:
        """The topic sinks, each with its position in `to`."""
        return [(i, sink) for i, sink in enumerate(self.to) if isinstance(sink, SinkSpec)]

    @property
    def tables(self) -> list[tuple[int, TableSpec]]:
        """The table sinks, each with its position in `to`."""
        return [(i, sink) for i, sink in enumerate(self.to) if isinstance(sink, TableSpec)]

    @property
    def later_tables(self) -> list[TableSpec]:
        """The tables that a table writer fills."""
        return [table for _, table in self.tables if table.commit == "later"]

    @property
    def together_tables(self) -> list[TableSpec]:
        """The tables whose rows are decided together with the outputs."""
        return [table for _, table in self.tables if table.commit == "together"]

    @property
    def joined(self) -> list[tuple[int, str]]:
        """Names of the other sides of its joins, each with the position of the step."""
        return [(i, step.join.with_) for i, step in enumerate(self.steps) if step.join is not None]

    @property
    def is_source(self) -> bool:
        """True if the stream has one parent and no steps, so that its records are its parent's."""
        return len(self.from_) == 1 and not self.steps

    @property
    def predicates(self) -> dict[str, str]:
        """The branches with a predicate, in order."""
        return {name: f for name, f in self.branch.items() if name != DEFAULT_BRANCH}

    @property
    def branch_names(self) -> tuple[str, ...]:
        """Names of all branches, in order; the default last."""
        default = self.branch.get(DEFAULT_BRANCH)
        return (*self.predicates, *((default,) if default is not None else ()))


class TopologySpec(Declared):
    """A whole application."""

    application: str
    """Name of the application: its consumer group and the start of its transactional ids.
    The characters a-z, 0-9, '_', '.' and '-'; the first is one of a-z and 0-9."""

    sources: dict[str, SourceSpec]
    """Topics to read, by the name that streams use for them."""

    streams: dict[str, StreamSpec]
    """Streams by name."""

    def with_later_tables(self) -> TopologySpec:
        """Return the same application with all tables filled by table writers."""

        def later(sink: AnySink) -> AnySink:
            is_table = isinstance(sink, TableSpec)
            return sink.model_copy(update={"commit": "later"}) if is_table else sink

        streams = {
            name: stream.model_copy(update={"to": tuple(map(later, stream.to))})
            for name, stream in self.streams.items()
        }
        return self.model_copy(update={"streams": streams})
