"""Declare a topology in Python: `Topology`, its streams, and their operators.

Declaring records what was called and where; `Topology.spec` turns the record into the same
data that a YAML file gives.
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from pydantic import ValidationError

from eosframework.errors import TopologyError
from eosframework.serialization.serdes import SerdeLike
from eosframework.topology.dsl.flatten import flatten
from eosframework.topology.dsl.join_methods import GlobalTable
from eosframework.topology.dsl.recorded_calls import (
    FunctionLike,
    Node,
    Recording,
    caller,
    plain_name,
)
from eosframework.topology.dsl.streams import OnErrorLike, Stream, policy_of
from eosframework.topology.spec.durations import DurationLike
from eosframework.topology.spec.loaded import LoadedApp
from eosframework.topology.spec.topology_spec import SourceSpec, TopologySpec


class Read(TypedDict, total=False):
    """What can be said of a topic that is read; see `Topology.stream`."""

    key: SerdeLike
    value: SerdeLike
    timestamp: FunctionLike | None
    name: str | None
    on_error: OnErrorLike | None
    sub_topology: str | None


class Topology:
    """An application: what it reads, what happens to each record, and what it writes.

    Args:
        application: its name: lower-case letters, digits, `_`, `.` and `-`.
    """

    def __init__(self, application: str) -> None:
        self._recording = Recording(application, caller())

    def stream(
        self,
        topic: str,
        *,
        key: SerdeLike = bytes,
        value: SerdeLike = bytes,
        timestamp: FunctionLike | None = None,
        name: str | None = None,
        on_error: OnErrorLike | None = None,
        sub_topology: str | None = None,
    ) -> Stream:
        """Read a topic.

        Args:
            topic: name of the topic.
            key: serde of the key: bytes, str, int, float, dict, a pydantic model, or a name.
            value: serde of the value, likewise.
            timestamp: takes the value and returns the event time, as milliseconds since the
                epoch or a datetime. None, and for null values: the record's own timestamp.
            name: what the source goes by. None: derived from the topic.
            on_error: for records that do not decode. None: as the first stream that reads it.
            sub_topology: name of the connected part this belongs to, part of its
                transactional ids. None: the name of its first stream, or the first source's
                where that stream has no name.

        Raises:
            TopologyError: the name is taken, or an argument is of the wrong kind.
        """
        node = self._source(
            topic,
            name,
            key=self._recording.serde(key),
            value=self._recording.serde(value),
            timestamp=self._timestamp(timestamp),
            on_error=policy_of(on_error),
            name=sub_topology,
        )
        return Stream(self._recording, node)

    def table(
        self,
        topic: str,
        *,
        history: DurationLike | None = None,
        ttl: DurationLike | None = None,
        **read: Unpack[Read],
    ) -> Stream:
        """Read a topic as a table: each record is the new row of its key, a null value deletes it.

        What it returns can be joined with; its records are the changes of rows.

        Args:
            topic: name of the topic.
            history: how far back rows are known. A stream that is joined with it finds the row
                that was current at each record's time. None: the current rows only.
            ttl: how long a row counts, by the time of the stream. None: until it is replaced or
                deleted.
            read: as in `stream`; the name is also that of the store.

        Raises:
            TopologyError: the name is taken, or an argument is of the wrong kind.
        """
        declared: dict[str, Any] = {
            "key": self._recording.serde(read.get("key", bytes)),
            "value": self._recording.serde(read.get("value", bytes)),
            "timestamp": self._timestamp(read.get("timestamp")),
            "on_error": policy_of(read.get("on_error")),
            "name": read.get("sub_topology"),
        }
        name = read.get("name")
        node = self._source(topic, name, **declared, table=True, history=history, ttl=ttl)
        return Stream(self._recording, node)

    def global_table(
        self,
        topic: str,
        *,
        key: SerdeLike = bytes,
        value: SerdeLike = bytes,
        name: str | None = None,
    ) -> GlobalTable:
        """Read a whole topic into the memory of every process, to join with by any key.

        Its rows are as they are now, not as they were at a record's time: processing the same
        records again may give something else.

        Args:
            topic: name of the topic; it may have any number of partitions.
            key: serde of the keys, as in `stream`.
            value: serde of the rows.
            name: what it goes by. None: derived from the topic.

        Raises:
            TopologyError: the name is taken.
        """
        keys, values = self._recording.serde(key), self._recording.serde(value)
        given = {"key": keys, "value": values, "global": True}
        return GlobalTable(self._recording, self._source(topic, name, **given))

    @property
    def spec(self) -> TopologySpec:
        """What was declared, as data.

        Raises:
            TopologyError: the declarations contradict each other.
        """
        return self.loaded().spec

    def loaded(self) -> LoadedApp:
        """Return what was declared with its places and the objects it refers to."""
        return flatten(self._recording)

    def _timestamp(self, function: FunctionLike | None) -> str | None:
        return None if function is None else self._recording.reference("timestamp", function)

    def _source(self, topic: str, called: str | None, **declared: Any) -> Node:
        recording = self._recording
        source = called or plain_name(topic)
        if source in recording.sources:
            raise TopologyError(
                f"source {source!r} is declared twice; keep the stream of the first declaration "
                f"and use it again, or give this one another name="
            )
        try:
            recording.sources[source] = SourceSpec.model_validate({"topic": topic, **declared})
        except ValidationError as error:
            detail = error.errors()[0]
            raise TopologyError(f"{caller()}: {source}: {detail['msg']}") from error
        return recording.add(Node(caller(), source=source))
