"""The entry point of the Python DSL: `Topology`, whose methods declare sources.

Calls are recorded with their places; `Topology.spec` converts them to the same data that a YAML
file gives.
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from pydantic import ValidationError

from eosframework.errors import TopologyError
from eosframework.records import K, V
from eosframework.serialization.serdes import UntypedSerde
from eosframework.topology.dsl.declarations import OnErrorLike, policy_of
from eosframework.topology.dsl.flatten import flatten
from eosframework.topology.dsl.recorded_calls import (
    Node,
    Recording,
    ValueFunction,
    caller,
    plain_name,
)
from eosframework.topology.dsl.streams import GlobalTable, Stream
from eosframework.topology.spec.fields import DurationLike
from eosframework.topology.spec.loaded import LoadedApp
from eosframework.topology.spec.topology_spec import SourceSpec, TopologySpec


class SourceOptions(TypedDict, total=False):
    """Further options of a source; see `Topology.stream`."""

    timestamp: ValueFunction | None
    name: str | None
    on_error: OnErrorLike | None
    sub_topology: str | None


class Topology:
    """An application: the topics it reads, the processing of their records, and its outputs.

    Args:
        application: its name: lower-case letters, digits, `_`, `.` and `-`.
    """

    def __init__(self, application: str) -> None:
        self._recording = Recording(application, caller())

    def __repr__(self) -> str:
        """Return the application's name, the topics that it reads, and its outputs."""
        recording = self._recording
        read = [source.topic for source in recording.sources.values()]
        sinks = [sink for node in recording.nodes for sink, _ in node.sinks]
        written = [sink.label for sink in sinks]
        shown = f"reads {', '.join(dict.fromkeys(read)) or 'nothing'}"
        shown += f"; writes {', '.join(dict.fromkeys(written)) or 'nothing'}"
        return f"<Topology {recording.application}: {shown}>"

    def stream(
        self,
        topic: str,
        *,
        key: type[K] | UntypedSerde = bytes,
        value: type[V] | UntypedSerde = bytes,
        timestamp: ValueFunction | None = None,
        name: str | None = None,
        on_error: OnErrorLike | None = None,
        sub_topology: str | None = None,
    ) -> Stream[K, V]:
        """Read a topic.

        Args:
            topic: name of the topic.
            key: serde of the key: a type, as bytes, str, int, a model or `tuple[str, int]`; or a
                name.
            value: serde of the value, as for the key.
            timestamp: takes the value and returns the event time, as milliseconds since the
                epoch or a datetime. None, and for null values: the record's timestamp.
            name: of the source. None: derived from the topic.
            on_error: for records that cannot be decoded. None: as the first stream that reads it.
            sub_topology: name of the sub-topology of this source, part of its transactional ids.
                None: the name of its first stream; the first source's if that stream is unnamed.

        Raises:
            TopologyError: the name is taken, or an argument is of the wrong kind.
        """
        options: SourceOptions = {
            "timestamp": timestamp,
            "name": name,
            "on_error": on_error,
            "sub_topology": sub_topology,
        }
        return Stream(self._recording, self._source(topic, key, value, options))

    def table(
        self,
        topic: str,
        *,
        key: type[K] | UntypedSerde = bytes,
        value: type[V] | UntypedSerde = bytes,
        history: DurationLike | None = None,
        ttl: DurationLike | None = None,
        **read: Unpack[SourceOptions],
    ) -> Stream[K, V]:
        """Read a topic as a table: each record is the new row of its key, a null value deletes it.

        The result can be joined with; its records are the changes of rows.

        Args:
            topic: name of the topic.
            key: as in `stream`.
            value: as in `stream`.
            history: how long earlier versions of rows are kept. A stream that is joined with the
                table finds the row that was current at each record's time. None: current rows only.
            ttl: lifetime of a row, in stream time. None: until it is replaced or deleted.
            read: as in `stream`; the name is also that of the store.

        Raises:
            TopologyError: the name is taken, or an argument is of the wrong kind.
        """
        node = self._source(topic, key, value, read, table=True, history=history, ttl=ttl)
        return Stream(self._recording, node)

    def global_table(
        self,
        topic: str,
        *,
        key: type[K] | UntypedSerde = bytes,
        value: type[V] | UntypedSerde = bytes,
        name: str | None = None,
    ) -> GlobalTable[K, V]:
        """Read a whole topic into the memory of every process, to join with by any key.

        A join finds the rows as they are now, not as they were at a record's time: processing the
        same records again may give other results.

        Args:
            topic: name of the topic; it may have any number of partitions.
            key: serde of the keys, as in `stream`.
            value: serde of the rows.
            name: of the table. None: derived from the topic.

        Raises:
            TopologyError: the name is taken.
        """
        node = self._source(topic, key, value, {"name": name}, **{"global": True})
        return GlobalTable(self._recording, node)

    @property
    def spec(self) -> TopologySpec:
        """The declarations as data.

        Raises:
            TopologyError: the declarations contradict each other.
        """
        return self.loaded().spec

    def loaded(self) -> LoadedApp:
        """Return the spec with its places and the objects it refers to."""
        return flatten(self._recording)

    def _source(
        self, topic: str, key: Any, value: Any, options: SourceOptions, **more: Any
    ) -> Node:
        recording = self._recording
        function = options.get("timestamp")
        declared = {
            "topic": topic,
            "key": recording.serde(key),
            "value": recording.serde(value),
            "timestamp": None if function is None else recording.reference("timestamp", function),
            "on_error": policy_of(options.get("on_error")),
            "name": options.get("sub_topology"),
            **more,
        }
        source = options.get("name") or plain_name(topic)
        if source in recording.sources:
            raise TopologyError(
                f"source {source!r} is declared twice; keep the stream of the first declaration "
                f"and use it again, or give this one another name="
            )
        try:
            recording.sources[source] = SourceSpec.model_validate(declared)
        except ValidationError as error:
            detail = error.errors()[0]
            raise TopologyError(f"{caller()}: {source}: {detail['msg']}") from error
        return recording.add(Node(caller(), source=source))
