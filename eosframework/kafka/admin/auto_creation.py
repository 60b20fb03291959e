"""Auto-creation of missing topics by brokers (auto.create.topics.enable)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaException, Producer

from eosframework.config import KafkaSettings
from eosframework.errors import EosError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.admin.metadata import TopicDescription, TopicIdentity
from eosframework.kafka.client.properties import Role, client_properties, new_client

LOOK_SECONDS = 0.02
CREATION_SECONDS = 5.0
"""The longest wait for brokers that auto-create topics."""

MISSING_SECONDS = 5.0
"""A missing topic counts as missing for this long without another request."""

MOST_MISSING = 1000
"""The most missing topics to remember."""


class AutoCreation:
    """Asks brokers to auto-create missing topics, and waits for them.

    Args:
        settings: how to reach the cluster.
        admin: describes topics of the same cluster.
        assume: try it although a broker's settings cannot be read.
        propagation_seconds: the wait for topics that were just created, if brokers create none.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        *,
        assume: bool = False,
        propagation_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._assume = assume
        self._propagation_seconds = propagation_seconds
        self._clock = clock
        self._is_enabled: bool | None = None

    def wait_for(self, missing: Sequence[str]) -> Mapping[str, TopicDescription | None]:
        """Return new descriptions of missing topics; empty if there is nothing to wait for.

        Raises:
            ClusterUnreachable: no broker answered in time.
        """
        enabled = self._enabled()
        seconds = CREATION_SECONDS if enabled else self._propagation_seconds
        if not seconds:
            return {}
        deadline = self._clock() + seconds
        if enabled:
            self._request(missing, deadline)
        while True:
            time.sleep(LOOK_SECONDS)
            found = self._admin.describe_written(missing)
            if self._clock() >= deadline or not any(map(is_missing, found.values())):
                return found

    def _enabled(self) -> bool:
        if self._is_enabled is None:
            self._is_enabled = any(
                self._assume
                if values is None
                else values.get("auto.create.topics.enable") == "true"
                for values in self._admin.broker_settings().values()
            )
        return self._is_enabled

    def _request(self, topics: Sequence[str], deadline: float) -> None:
        """Request metadata as a producer does, which creates the topics."""
        producer = new_client(Producer, client_properties(self._settings, Role.PRODUCER))
        for topic in topics:
            if self._clock() >= deadline:
                return
            try:
                producer.list_topics(topic, timeout=self._settings.request_timeout_seconds)
            except KafkaException:
                return


class ChosenTopics:
    """Checks whether a topic that a user function chose exists.

    A producer waits for an unknown topic until its records expire, and then the same records are
    produced again: without this check one record would stall its partition forever.

    Args:
        settings: how to reach the cluster.
        admin: describes topics of the same cluster.
        seen: called with each topic that exists.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        admin: ClusterAdmin,
        seen: Callable[[str, TopicIdentity], object] | None = None,
    ) -> None:
        self._admin = admin
        self._seen = seen
        self._creation = AutoCreation(settings, admin, assume=True)
        self._missing_since: dict[str, float] = {}

    def is_missing(self, topic: str) -> bool:
        """Return whether a topic does not exist; False if no broker answers."""
        since = self._missing_since.get(topic)
        if since is not None and time.monotonic() - since < MISSING_SECONDS:
            return True
        try:
            facts = self._admin.describe_written([topic])[topic]
            if is_missing(facts):
                facts = self._creation.wait_for([topic]).get(topic, facts)
        except EosError:
            # An unavailable cluster is not the record's fault.
            return False
        if not is_missing(facts):
            if facts is not None and self._seen is not None:
                self._seen(topic, facts.identity)
            return False
        if len(self._missing_since) >= MOST_MISSING:
            self._missing_since.clear()
        self._missing_since[topic] = time.monotonic()
        return True


def is_missing(facts: TopicDescription | None) -> bool:
    """Return whether a topic does not exist; None: it may not be described."""
    return facts is not None and not facts.exists
