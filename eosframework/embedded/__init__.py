"""Real servers started from packages: Apache Kafka as local processes, one node or three.

Owns the jars and their cache, the choice of a Java, the processes and their data directory.
Refuses to pretend: there is no in-memory broker here, and nothing here speaks for a cluster
that this package did not start.
"""

from __future__ import annotations

from eosframework.errors import ConfigurationError

try:
    import psutil as _psutil  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as _error:
    raise ConfigurationError(
        "embedded servers need packages that are not installed; "
        "run: pip install 'eosframework[embedded]'"
    ) from _error

from eosframework.embedded.cluster import KafkaCluster, find_kafka, start_kafka
from eosframework.embedded.node import Node

__all__ = ["KafkaCluster", "Node", "find_kafka", "start_kafka"]
