"""Brokers of other versions than the one that the embedded cluster is made for.

Their jars are fetched into the same cache, beside it; what was fetched first is the lock.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from unittest.mock import patch

from eosframework.embedded import java, kafka_cluster
from eosframework.embedded.jars import KAFKA_VERSION, LOG_BINDING, JarSet, fetched

OLDEST_ACCEPTED = "4.0.1"
LAST_REFUSED = "3.9.1"

_LOG4J_2 = (
    LOG_BINDING,
    "org.apache.logging.log4j:log4j-api:2.25.4",
    "org.apache.logging.log4j:log4j-core:2.25.4",
)
_LOG4J_1 = ("org.slf4j:slf4j-reload4j:1.7.36", "ch.qos.reload4j:reload4j:1.2.25")


@contextmanager
def kafka_of(version: str) -> Generator[None]:
    """Let clusters that are started meanwhile be of a version."""
    if version == KAFKA_VERSION:
        yield
        return
    is_3 = version.startswith("3.")
    jars = JarSet(
        f"Apache Kafka {version}",
        f"kafka-{version}",
        f"org.apache.kafka:kafka_2.13:{version}",
        _LOG4J_1 if is_3 else _LOG4J_2,
    )
    with (
        patch.object(kafka_cluster, "kafka_jars", lambda: fetched(jars)),
        patch.object(kafka_cluster, "FEATURES", () if is_3 else kafka_cluster.FEATURES),
        patch.object(java, "KAFKA", jars),
    ):
        yield
