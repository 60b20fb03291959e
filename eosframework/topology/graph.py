"""A checked topology as the worker runs it: functions resolved, connected parts found.

A topology is first a `spec` (what the user wrote, as data), then a graph (this module).
Nodes form a DAG: a node that several streams merge into is one object with several parents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from eosframework.serdes import Serde


class Operator(StrEnum):
    """What a step does with each record. The comment gives the function's signature."""

    FILTER = "filter"  # value -> bool
    MAP_VALUES = "map_values"  # value -> value
    FLAT_MAP_VALUES = "flat_map_values"  # value -> iterable of values
    PEEK = "peek"  # value -> ignored
    SELECT_KEY = "select_key"  # Record -> key
    MAP = "map"  # Record -> Record or (key, value)
    FLAT_MAP = "flat_map"  # Record -> iterable of Record or (key, value)
    PROCESS = "process"  # Record -> None or iterable of Record or (key, value)
    BRANCH = "branch"  # value -> index into Step.branches, or None: the record goes nowhere


class Policy(StrEnum):
    """What happens with a record that cannot be processed."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class OnError:
    """A policy; `topic` is the dead-letter topic where the policy is `dead_letter`."""

    policy: Policy = Policy.FAIL
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function and the name it goes by in messages (`flights:is_late`)."""

    name: str
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Sink:
    """The end of a stream: a topic, or a function that chooses one for each record."""

    name: str
    topic: str | Function
    key: Serde
    value: Serde
    on_error: OnError


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operator with what follows it.

    Args:
        name: where the user wrote it, for messages: `late.filter(is_late)`.
        stream: the stream it is declared in.
        children: nodes that take what the step gives; a branch has none here.
        branches: of a branch only: in order, a predicate on the value (None: whatever is left)
            and the nodes that take the records for which it is the first to hold.
    """

    name: str
    stream: str
    operator: Operator
    function: Function
    on_error: OnError
    children: list[Step | Sink] = field(default_factory=list["Step | Sink"])
    branches: tuple[tuple[Function | None, list[Step | Sink]], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A topic that is read, and the nodes that take each of its records.

    Args:
        timestamp: takes the decoded value and returns the event time, as milliseconds since
            the epoch or a datetime; None: the record's own timestamp.
        on_error: for records that do not decode.
    """

    name: str
    topic: str
    key: Serde
    value: Serde
    timestamp: Function | None
    on_error: OnError
    children: list[Step | Sink] = field(default_factory=list["Step | Sink"])


class TableMode(StrEnum):
    """How rows enter a table."""

    APPEND = "append"
    UPSERT = "upsert"
    UPSERT_DELETE = "upsert_delete"


@dataclass(frozen=True, slots=True, eq=False)
class TableSink:
    """The end of a stream in a table of the database.

    Args:
        table: its name, with a schema before a dot where one was given.
        keys: columns that tell rows apart; empty where rows are appended.
        row: takes the whole record and returns a row, a list of rows or None; None: the value.
        model: pydantic model with the columns, where one is known.
        on_error: for rows that the database refuses; a dead letter goes to the table of refused
            rows.
    """

    name: str
    table: str
    mode: TableMode
    keys: tuple[str, ...]
    row: Function | None
    model: type[BaseModel] | None
    on_error: Policy


@dataclass(frozen=True, slots=True, eq=False)
class Persister:
    """What carries a topic's records into tables; one task for each partition.

    Args:
        tables: those that every record goes to, in one transaction of the database.
        on_error: for records that do not decode.
        sub_topology: that which writes the topic, if it is the application's own: it has a
            partition for each task of that one. None: a source topic, read as it is.
    """

    name: str
    topic: str
    key: Serde
    value: Serde
    tables: tuple[TableSink, ...]
    on_error: Policy
    sub_topology: str | None = None


@dataclass(frozen=True, slots=True)
class SubTopology:
    """Streams connected without a repartition topic; one task for each of its partitions."""

    name: str
    sources: tuple[Source, ...]
    sink_topics: tuple[str, ...]
    """Topics written that are known by name, sorted, dead-letter topics included."""
    dynamic_sinks: tuple[str, ...] = ()
    """Names of sinks that choose their topic for each record."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole application."""

    application: str
    sub_topologies: tuple[SubTopology, ...]
    persisters: tuple[Persister, ...] = ()
