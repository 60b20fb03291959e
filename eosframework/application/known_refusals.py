"""Output records that topics are known to reject, from the topics' descriptions."""

from __future__ import annotations

from eosframework.application.start_checks import Facts, written_topics
from eosframework.config import Settings
from eosframework.kafka.admin.metadata import TopicFacts
from eosframework.kafka.worker_clients import producer_client
from eosframework.processing.failures.refused_outputs import BATCH_BYTES, OutputLimits
from eosframework.records import LATEST_MS
from eosframework.topology.graph.graph import Graph


def known_refusals(settings: Settings, facts: Facts, graph: Graph) -> dict[str, OutputLimits]:
    """Return the known limits of outputs, by topic.

    Brokers compare a batch as it arrives, and a record that is too large is a batch of its own
    (seen). Compressed it may be smaller, so with compression only the producer's own limit is
    known, which librdkafka compares with the uncompressed size.

    Args:
        settings: of the worker.
        facts: of the cluster.
        graph: of the application.
    """
    properties = producer_client(settings, facts.output_limits(graph))
    largest = int(properties["message.max.bytes"])
    names = ("compression.type", "compression.codec")
    is_plain = all(properties.get(name, "none") == "none" for name in names)
    return {
        name: _limits_of(topic, largest, is_plain)
        for name in written_topics(graph)
        if (topic := facts.topics.get(name)) is not None and topic.exists
    }


def _limits_of(topic: TopicFacts, largest: int, is_plain: bool) -> OutputLimits:
    value_bytes = largest
    if is_plain and topic.max_message_bytes:
        value_bytes = min(largest, topic.max_message_bytes - BATCH_BYTES)
    values = topic.values or {}
    if values.get("message.timestamp.type") != "CreateTime":
        return OutputLimits(value_bytes)
    before, after = (
        _milliseconds(values.get(f"message.timestamp.{side}.max.ms"))
        for side in ("before", "after")
    )
    return OutputLimits(value_bytes, before, after)


def _milliseconds(text: str | None) -> int | None:
    """Return a limit of time; None: it is unknown, or exceeds the range of timestamps."""
    number = int(text) if text and text.isdigit() else None
    return None if number is None or number > LATEST_MS else number
