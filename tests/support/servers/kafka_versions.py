"""Brokers of versions that the embedded cluster does not offer.

Their jars are fetched into the same cache; what was fetched first is the lock.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from unittest.mock import patch

from eosframework.embedded import kafka_cluster
from eosframework.embedded.jars import JarSet, kafka_versions

OLDEST_ACCEPTED = kafka_versions()[0]
LAST_REFUSED = "3.9.1"

_LOG4J_1 = ("org.slf4j:slf4j-reload4j:1.7.36", "ch.qos.reload4j:reload4j:1.2.25")


@contextmanager
def kafka_before_4() -> Generator[None]:
    """Let clusters that are started meanwhile be of the last version that is refused."""
    jars = JarSet(
        f"Apache Kafka {LAST_REFUSED}",
        f"kafka-{LAST_REFUSED}",
        f"org.apache.kafka:kafka_2.13:{LAST_REFUSED}",
        _LOG4J_1,
    )
    with (
        patch.object(kafka_cluster, "kafka_release", lambda _: jars),
        patch.object(kafka_cluster, "FEATURES", ()),
    ):
        yield
