"""Limits of output topics: records that they are known to reject, from their descriptions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eosframework.application.needed_access import write_access
from eosframework.application.start_checks import Facts
from eosframework.config import KafkaSettings, Settings
from eosframework.engine.failures.refused_outputs import BATCH_BYTES, OutputLimits
from eosframework.kafka.admin.auto_creation import AutoCreation, is_missing
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicDescription, TopicIdentity
from eosframework.kafka.worker_clients import producer_client
from eosframework.postgres.outbox.relay_position import Destination
from eosframework.records import LATEST_MS, whole_number
from eosframework.topology.graph.graph import Graph

KNOWN_SECONDS = 1.0
"""Brokers learn of a new topic a moment after its creation."""

PATIENCE_SHARE = 0.1
"""The greatest fraction of time spent waiting for topics: publishers choose the names, and messages
for other topics wait meanwhile."""


def output_limits(settings: Settings, facts: Facts, graph: Graph) -> dict[str, OutputLimits]:
    """Return the known limits of a worker's outputs, by topic.

    Args:
        settings: of the worker.
        facts: of the cluster.
        graph: of the application.
    """
    producer = producer_client(settings, facts.output_limits(graph))
    return {
        name: limits_of(topic, producer)
        for name in graph.written_topics
        if (topic := facts.topics.get(name)) is not None and topic.exists
    }


class RelayDestinations:
    """The `Destinations` of a cluster, for an outbox relay.

    Args:
        settings: how to reach the cluster.
        admin: describes topics of the same cluster.
        producer: properties of the producers that write to the topics.
        clock: seconds, monotonic.
        seen: called with each topic that exists.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        producer: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
        *,
        seen: Callable[[str, TopicIdentity], object] | None = None,
    ) -> None:
        self._admin = admin
        self._seen = seen
        self._producer = producer
        self._clock = clock
        self._impatient_until = clock()
        self._creation = AutoCreation(
            settings, admin, propagation_seconds=KNOWN_SECONDS, clock=clock
        )

    def describe(self, topics: Iterable[str]) -> dict[str, Destination]:
        """Return the limits of each topic, after asking brokers to auto-create missing ones.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        found = self._admin.describe_written(topics)
        missing = [name for name, facts in found.items() if is_missing(facts)]
        if missing and self._clock() >= self._impatient_until:
            began = self._clock()
            found |= self._creation.wait_for(missing)
            waited = self._clock() - began
            self._impatient_until = self._clock() + waited * (1 / PATIENCE_SHARE - 1)
        return {name: self._destination(name, facts) for name, facts in found.items()}

    def _destination(self, topic: str, facts: TopicDescription | None) -> Destination:
        needed = write_access(topic)
        if facts is None:
            wanted = " and ".join(needed.granted)
            return Destination(
                f"topic {topic!r} may not be described by this principal; grant {wanted} on "
                f"{needed.kind} {topic}, which includes Describe"
            )
        if not facts.exists:
            return Destination(f"topic {topic!r} does not exist")
        if self._seen is not None:
            self._seen(topic, facts.identity)
        if missing := needed.missing(facts.allowed):
            return Destination(
                f"this principal is not allowed {missing} on topic {topic}; grant {missing} on "
                f"{needed.kind} {topic}"
            )
        policy = (facts.values or {}).get("cleanup.policy") or ""
        return Destination(
            most_bytes=_largest_bytes(facts, self._producer), needs_key="compact" in policy
        )


def limits_of(topic: TopicDescription, producer: Mapping[str, Any]) -> OutputLimits:
    """Return the limits of an existing topic, with a producer of some properties."""
    value_bytes = _largest_bytes(topic, producer, overhead=BATCH_BYTES)
    values = topic.values or {}
    if values.get("message.timestamp.type") != "CreateTime":
        return OutputLimits(value_bytes)
    before, after = (
        _milliseconds(values.get(f"message.timestamp.{side}.max.ms"))
        for side in ("before", "after")
    )
    return OutputLimits(value_bytes, before, after)


def _largest_bytes(topic: TopicDescription, producer: Mapping[str, Any], overhead: int = 0) -> int:
    """Return the size that no record of a topic may exceed; 0: it is not known.

    Brokers compare a batch as it arrives, and a record that is too large is a batch of its own
    (seen). Compressed it may be smaller, so with compression only the producer's own limit is
    known, which librdkafka compares with the uncompressed size.
    """
    largest = int(producer.get("message.max.bytes", 0))
    names = ("compression.type", "compression.codec")
    if topic.max_message_bytes and all(str(producer.get(n, "none")) == "none" for n in names):
        taken = topic.max_message_bytes - overhead
        return min(largest, taken) if largest else taken
    return largest


def _milliseconds(text: str | None) -> int | None:
    """Return a limit of time; None: it is unknown, or exceeds the range of timestamps."""
    number = whole_number(text or "")
    return None if number is None or number > LATEST_MS else number
