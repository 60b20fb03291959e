"""Output topics that do not exist, after brokers were asked to auto-create them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from eosframework.config import KafkaSettings
from eosframework.errors import EosError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.writer import auto_create

LOOK_SECONDS = 0.01
CREATION_SECONDS = 5.0

ASK_AGAIN_SECONDS = 5.0
"""A missing topic counts as missing for this long without another request."""

MOST_MISSING = 1000
"""The most missing topics to remember."""


def missing_topics(
    settings: KafkaSettings, admin: ClusterAdmin, topics: Iterable[str]
) -> list[str]:
    """Return the topics that do not exist, after asking brokers to auto-create them.

    Raises:
        ClusterUnreachable: no broker answered in time.
    """
    missing = _not_there(admin, sorted(topics))
    if missing and _may_create_by_use(admin):
        deadline = time.monotonic() + CREATION_SECONDS
        auto_create(settings, missing, CREATION_SECONDS)
        while missing and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            missing = _not_there(admin, missing)
    return missing


class ChosenTopics:
    """Checks whether a topic that a user function chose exists.

    A producer waits for an unknown topic until its records expire, and then the same records are
    produced again: without this check one record would stall its partition forever.
    """

    def __init__(self, settings: KafkaSettings, admin: ClusterAdmin) -> None:
        self._settings, self._admin = settings, admin
        self._missing_since: dict[str, float] = {}

    def is_missing(self, topic: str) -> bool:
        """Return whether a topic does not exist; False if no broker answers."""
        now = time.monotonic()
        since = self._missing_since.get(topic)
        if since is not None and now - since < ASK_AGAIN_SECONDS:
            return True
        try:
            is_missing = bool(missing_topics(self._settings, self._admin, [topic]))
        except EosError:
            # An unavailable cluster is not the record's fault.
            return False
        if is_missing:
            if len(self._missing_since) >= MOST_MISSING:
                self._missing_since.clear()
            self._missing_since[topic] = time.monotonic()
        return is_missing


def _not_there(admin: ClusterAdmin, topics: Sequence[str]) -> list[str]:
    return [name for name, found in admin.describe_topics(topics).items() if not found.exists]


def _may_create_by_use(admin: ClusterAdmin) -> bool:
    # Settings that may not be read may allow it.
    return any(
        values is None or values.get("auto.create.topics.enable") == "true"
        for values in admin.broker_settings().values()
    )
