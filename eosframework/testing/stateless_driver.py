"""A driver that runs single records through a topology in this process, without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from eosframework.config import RegistrySettings
from eosframework.engine.codegen.compiler import CompiledSource, compile_source
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.errors import ConfigurationError
from eosframework.kafka.schema_registry.schema_codecs import SchemaRegistry
from eosframework.records import Headers, Record, TopicPartition
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.serdes import Serde
from eosframework.topology.graph.graph import Graph, Sink
from eosframework.topology.graph.walk import nodes_of
from eosframework.transactions.ports import Message, Output


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as a consumer receives it."""

    topic_: str
    value_: bytes | None
    key_: bytes | None
    timestamp_: int
    offset_: int
    headers_: list[tuple[str, bytes | None]] | None
    partition_: int = 0

    @property
    def place(self) -> TopicPartition:
        """The partition it was sent to, with its topic."""
        return TopicPartition(self.topic_, self.partition_)

    def topic(self) -> str:
        """The topic it was sent to."""
        return self.topic_

    def partition(self) -> int:
        """The partition it was sent to."""
        return self.partition_

    def offset(self) -> int:
        """Its offset."""
        return self.offset_

    def key(self) -> bytes | None:
        """The encoded key."""
        return self.key_

    def value(self) -> bytes | None:
        """The encoded value."""
        return self.value_

    def timestamp(self) -> tuple[int, int]:
        """The timestamp's type, and the timestamp in milliseconds."""
        return 1, self.timestamp_

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """The headers in order."""
        return self.headers_


class TopologyDriver:
    """Runs a topology's functions on records, one at a time, and returns their results.

    It compiles and calls the same code as a worker, but without Kafka, so it proves nothing about
    exactly-once.

    Args:
        graph: a resolved topology.
    """

    def __init__(self, graph: Graph) -> None:
        keep_schemas_here(graph)
        self.failures = FailureHandler()
        self._sources: dict[str, CompiledSource] = {
            source.topic: compile_source(source)
            for sub_topology in graph.sub_topologies
            for source in sub_topology.sources
        }
        self._serdes = sink_serdes(graph)
        self._offsets: dict[str, int] = {}
        self._stream_time = 0

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        timestamp: int = 0,
        headers: Headers = (),
    ) -> list[Record]:
        """Send one record and return the records that the topology writes for it.

        Args:
            topic: a source topic.
            value: encoded with the source's serde; bytes stay unchanged.
            key: as for the value.
            timestamp: in milliseconds since the epoch.
            headers: in order.

        Returns:
            Records with the output topic in `topic`, decoded with their sink's serdes; bytes
            in dead letters and in outputs to chosen topics.

        Raises:
            RecordFailed: a function raised, and the stream's policy is to fail.
        """
        compiled = self._sources.get(topic)
        if compiled is None:
            raise ConfigurationError(
                f"no source reads topic {topic!r}; there are {', '.join(sorted(self._sources))}"
            )
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        message = Sent(
            topic,
            encoded(value, compiled.source.value),
            encoded_key(key, compiled.source.key),
            timestamp,
            offset,
            list(headers) or None,
        )
        out: list[Output] = []
        messages: Sequence[Message] = [message]
        self._stream_time = compiled.run(messages, out, self._stream_time, self.failures)
        return [self._decode(output) for output in out]

    def _decode(self, output: Output) -> Record:
        topic, value, key, _, _, _, timestamp, headers = output
        key_serde, value_serde = self._serdes.get(topic, (None, None))
        return Record(
            decoded(key, key_serde),
            decoded(value, value_serde),
            timestamp,
            headers or (),
            topic,
        )


def encoded(value: Any, serde: Serde) -> bytes | None:
    """Return the bytes of a value; bytes stay unchanged."""
    if value is None or isinstance(value, bytes) or serde.encode is None:
        return cast("bytes | None", value)
    return serde.encode(value)


def encoded_key(key: Any, serde: Serde) -> bytes | None:
    """Return the bytes of a key; bytes stay unchanged."""
    encode = key_encoder(serde)
    if key is None or isinstance(key, bytes) or encode is None:
        return cast("bytes | None", key)
    return encode(key)


def decoded(data: bytes | None, serde: Serde | None) -> Any:
    """Return the value of bytes; without a serde the bytes."""
    if data is None or serde is None or serde.decode is None:
        return data
    return serde.decode(data)


def sink_serdes(graph: Graph) -> dict[str, tuple[Serde, Serde]]:
    """Return the serdes of key and value of each output topic with a fixed name, and of rows."""
    rows = {sink.topic: (sink.key, sink.value) for sink in graph.together}
    return rows | {
        node.topic: (node.key, node.value)
        for part in graph.all_parts
        for node in nodes_of(part)
        if isinstance(node, Sink) and isinstance(node.topic, str)
    }


def keep_schemas_here(graph: Graph) -> None:
    """Bind serdes with schemas to this process instead of a registry."""
    if graph.codecs:
        SchemaRegistry(RegistrySettings(), local=True).bind(graph.codecs)
