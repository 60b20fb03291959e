"""Embedded servers, started from packages: Apache Kafka with one node or three, and PostgreSQL.

Owns the jars and their cache, the choice of a Java, the processes and their data directories. There
is no in-memory broker or database here, and no client of servers that this package did not start.

Internal: no module here is public.
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

from eosframework.embedded.kafka_cluster import KafkaCluster, find_kafka, start_kafka
from eosframework.embedded.node import Node
from eosframework.embedded.postgres_server import PostgresServer, find_postgres, start_postgres

__all__ = [
    "KafkaCluster",
    "Node",
    "PostgresServer",
    "find_kafka",
    "find_postgres",
    "start_kafka",
    "start_postgres",
]
