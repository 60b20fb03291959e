"""What a user wrote, as data: the same whether it came from YAML or from Python.

These models are the shape of a topology file; their descriptions are its JSON Schema. What
takes more than one part to judge is in `lint`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

OPERATORS = (
    "filter",
    "map_values",
    "flat_map_values",
    "peek",
    "select_key",
    "map",
    "flat_map",
    "process",
)
"""Operators that a step can name."""

SIDE_EFFECTS = ("peek", "process")
"""Operators that do something even where nothing follows them."""

DEFAULT_BRANCH = "default"
"""In a branch, the key whose value names the stream of the records that are left."""


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )


class DeadLetter(_Part):
    """Write a record that cannot be processed to a topic, and go on."""

    dead_letter: str = Field(min_length=1)
    """Topic that takes the record, in the same transaction as its offset."""


def _check_policy(policy: Any) -> Any:
    if isinstance(policy, DeadLetter) or policy in ("fail", "skip"):
        return policy
    if policy == "dead_letter" or policy in ({"dead_letter": None}, {"dead_letter": ""}):
        raise ValueError("dead_letter has no topic; expected {dead_letter: TOPIC}")
    if isinstance(policy, dict):
        keys = list(cast(dict[Any, Any], policy))
        if keys == ["dead_letter"] and isinstance(policy["dead_letter"], str):
            return cast(Any, policy)
    raise ValueError(f"{policy!r} is no policy; expected fail, skip or {{dead_letter: TOPIC}}")


def _listed(names: Any) -> Any:
    return (names,) if isinstance(names, str) else names


def _sinks(sinks: Any) -> Any:
    if isinstance(sinks, str | Mapping | SinkSpec):
        sinks = [sinks]
    if not isinstance(sinks, list | tuple):
        return sinks
    return [{"topic": s} if isinstance(s, str) else s for s in cast(list[Any], sinks)]


Policy = Annotated[Literal["fail", "skip"] | DeadLetter, BeforeValidator(_check_policy)]
"""What happens with a record that cannot be processed."""

_FROM_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
}


class SourceSpec(_Part):
    """A topic that is read."""

    topic: str
    """Name of the topic."""

    key: str = "bytes"
    """Serde of the key: bytes, string, integer, float, json, or module:Model."""

    value: str = "bytes"
    """Serde of the value: bytes, string, integer, float, json, or module:Model."""

    timestamp: str | None = None
    """module:function that takes the value and returns the event time, as milliseconds since
    the epoch or a datetime. Default: the record's own timestamp."""

    on_error: Policy | None = None
    """For records that do not decode: fail, skip, or {dead_letter: TOPIC}. Default: that of the
    first stream that reads this source."""

    name: str | None = None
    """Name of the sub-topology that this source belongs to, part of its transactional ids.
    Default: the name of its first declared stream."""


class StepSpec(_Part):
    """One operator with its function, as `filter: module:function`."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    filter: str | None = None
    """Keep the records for whose value the function is true."""

    map_values: str | None = None
    """Replace the value by what the function makes of it."""

    flat_map_values: str | None = None
    """Replace the record by one for each value that the function gives."""

    peek: str | None = None
    """Call the function with the value and go on with the record unchanged."""

    select_key: str | None = None
    """Replace the key by what the function makes of the whole record."""

    map: str | None = None
    """Replace the record by what the function makes of it: a Record or (key, value)."""

    flat_map: str | None = None
    """Replace the record by each Record or (key, value) that the function gives."""

    process: str | None = None
    """Call the function with the whole record and go on with what it gives, if anything."""

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
        """Reference to the function."""
        return getattr(self, self.operator)


class SinkSpec(_Part):
    """Where a stream goes: a topic, or one that a function chooses for each record."""

    topic: str | None = None
    """Name of the topic."""

    topic_from: str | None = None
    """module:function that takes the whole record and returns the topic's name."""

    topics: tuple[str, ...] = ()
    """Topics that topic_from can choose. Where given, it can choose no other."""

    key: str | None = None
    """Serde of the key. Default: that of the source."""

    value: str | None = None
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


class StreamSpec(_Part):
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
    Default: that of the stream it reads, else fail."""

    to: Annotated[tuple[SinkSpec, ...], BeforeValidator(_sinks)] = ()
    """Topics that the records are written to."""

    @property
    def predicates(self) -> dict[str, str]:
        """The branches that have a predicate, in order."""
        return {name: f for name, f in self.branch.items() if name != DEFAULT_BRANCH}

    @property
    def branch_names(self) -> tuple[str, ...]:
        """Names of all branches, in order; the default last."""
        default = self.branch.get(DEFAULT_BRANCH)
        return (*self.predicates, *((default,) if default is not None else ()))


class TopologySpec(_Part):
    """A whole application, as a user declared it."""

    application: str
    """Name of the application: its consumer group and the start of its transactional ids.
    Lower-case letters, digits, '_' and '.'."""

    sources: dict[str, SourceSpec]
    """Topics that are read, by the name that streams refer to."""

    streams: dict[str, StreamSpec]
    """Streams by name."""
