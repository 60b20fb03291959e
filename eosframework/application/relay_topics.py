"""Destination topics of an outbox's messages, as the cluster describes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eosframework.application.needed_access import write_access
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicFacts
from eosframework.kafka.client.writer import auto_create
from eosframework.outbox.outbox_ports import Destination

LOOK_SECONDS = 0.05
KNOWN_SECONDS = 1.0
"""Brokers learn of a new topic a moment after its creation."""

CREATION_SECONDS = 5.0
"""The longest wait for brokers that auto-create topics."""

PATIENCE_SHARE = 0.1
"""The greatest fraction of time spent waiting for topics: publishers choose the names, and messages
for other topics wait meanwhile."""


class RelayDestinations:
    """The `Destinations` of a cluster.

    Args:
        settings: how to reach the cluster.
        admin: describes topics of the same cluster.
        producer: properties of the producers that write to the topics.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        producer: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._most_bytes = int(producer.get("message.max.bytes", 0))
        self._compresses = str(producer.get("compression.type", "none")) != "none"
        self._clock = clock
        self._impatient_until = clock()
        self._creates: bool | None = None

    def describe(self, topics: Iterable[str]) -> dict[str, Destination]:
        """Return the limits of each topic, after asking brokers to auto-create missing ones.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        found = self._admin.describe_written(topics)
        missing = [name for name, facts in found.items() if facts is not None and not facts.exists]
        if missing and self._clock() >= self._impatient_until:
            began = self._clock()
            found |= self._awaited(missing)
            waited = self._clock() - began
            self._impatient_until = self._clock() + waited * (1 / PATIENCE_SHARE - 1)
        return {name: self._destination(name, facts) for name, facts in found.items()}

    def _awaited(self, missing: Sequence[str]) -> dict[str, TopicFacts | None]:
        """Wait for topics that were just created, or that brokers auto-create on request."""
        deadline = self._clock() + KNOWN_SECONDS
        if self._are_created_by_use():
            deadline = self._clock() + CREATION_SECONDS
            auto_create(self._settings, missing, CREATION_SECONDS)
        while True:
            found = self._admin.describe_written(missing)
            is_over = self._clock() >= deadline
            if is_over or all(facts is None or facts.exists for facts in found.values()):
                return found
            time.sleep(LOOK_SECONDS)

    def _are_created_by_use(self) -> bool:
        if self._creates is None:
            self._creates = any(
                values is not None and values.get("auto.create.topics.enable") == "true"
                for values in self._admin.broker_settings().values()
            )
        return self._creates

    def _destination(self, topic: str, facts: TopicFacts | None) -> Destination:
        needed = write_access(topic)
        if facts is None:
            wanted = " and ".join(needed.granted)
            return Destination(
                f"topic {topic!r} may not be described by this principal; grant {wanted} on "
                f"{needed.kind} {topic}, which includes Describe"
            )
        if not facts.exists:
            return Destination(f"topic {topic!r} does not exist")
        if missing := needed.missing(facts.allowed):
            return Destination(
                f"this principal is not allowed {missing} on topic {topic}; grant {missing} on "
                f"{needed.kind} {topic}"
            )
        limits = [self._most_bytes, 0 if self._compresses else facts.max_message_bytes]
        policy = (facts.values or {}).get("cleanup.policy") or ""
        return Destination(
            most_bytes=min((limit for limit in limits if limit), default=0),
            needs_key="compact" in policy,
        )
