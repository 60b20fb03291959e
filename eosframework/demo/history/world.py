"""One of two worlds that are compared: a broker, a database, and the application on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from pydantic import SecretStr

from eosframework.config import DatabaseSettings, KafkaSettings
from eosframework.demo.feeds import FEEDS, MONTHS, FedRecord
from eosframework.demo.files import example_file
from eosframework.demo.services import Service
from eosframework.demo.stage import PARTITIONS
from eosframework.demo.workers import Workers
from eosframework.embedded import KafkaCluster, PostgresServer
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.client.feeder import feed
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.operations.audit.digest import digest_of
from eosframework.postgres import Database, translating
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve

PROCESSES = 2
INPUT = "flights.landed"
TABLE = "hourly_delays"

Content = Counter[bytes]
"""Records or rows as digests or texts, and how often each is there."""

_ROWS = b"SELECT row_to_json(hourly_delays)::text FROM hourly_delays"


class World:
    """The example `delays` on servers of its own.

    Args:
        name: of the directory and in messages.
        directory: of the demo.
        cluster: its broker.
        server: its database.
    """

    def __init__(
        self, name: str, directory: Path, cluster: KafkaCluster, server: PostgresServer
    ) -> None:
        self.name = name
        self.server = server
        self.settings = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers)
        self.admin = ClusterAdmin(self.settings)
        self.topology = example_file("flights", "delays.yaml")
        self.graph: Graph = resolve(load_app(str(self.topology)))
        self.log_file = directory / f"{name}.log"
        self._directory = directory
        self._bootstrap_servers = cluster.bootstrap_servers
        self._environment = {
            "EOS_KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "EOS_DATABASE__DSN": server.dsn,
            "EOS_STATE__DIRECTORY": str(directory / f"{name}.stores"),
            "SPARK_LOCAL_DIRS": str(directory / f"{name}.spark"),
            "TMPDIR": str(directory),
        }

    def fill_tables(self) -> dict[str, int]:
        """Create the input topics, feed what flights are looked up in, and count it by topic."""
        self.admin.create_topics([TopicToCreate(topic, PARTITIONS) for topic in FEEDS])
        tables = {topic: records for topic, records in FEEDS.items() if topic != INPUT}
        return {topic: feed(self.settings, topic, of(MONTHS)) for topic, of in tables.items()}

    def feed(self, flights: Iterable[FedRecord], on_turn: Callable[[int], None]) -> int:
        """Feed flights as fast as the broker takes them."""
        return feed(self.settings, INPUT, flights, on_turn=on_turn)

    def start(self, command: str, *arguments: str) -> Service:
        """Start a command of eosframework on the topology."""
        words = [*command.split(), str(self.topology), *arguments]
        name = f"`eosframework {command}`"
        return Service(name, words, self.log_file, self._environment, self._directory)

    def workers(self) -> Workers:
        """Start workers under their supervisor."""
        return Workers(
            self.topology, self._bootstrap_servers, PROCESSES, self.log_file, self._environment
        )

    def lag(self) -> int:
        """Return how many offsets workers have still to commit; some are markers."""
        partitions = [TopicPartition(t, n) for t in sorted(self.read) for n in range(PARTITIONS)]
        bounds = self.admin.log_bounds(partitions)
        committed = self.admin.committed(self.graph.application, partitions, stable=False)
        return sum(bounds[p.topic_partition][1] - (p.offset or 0) for p in committed)

    @property
    def read(self) -> set[str]:
        """Topics that tasks read, those of the application's own included."""
        return {source.topic for part in self.graph.sub_topologies for source in part.sources}

    @property
    def outputs(self) -> list[str]:
        """Topics that others read: those that the application does not read itself."""
        written = {topic for part in self.graph.sub_topologies for topic in part.sink_topics}
        return sorted(
            written - self.read - {persister.topic for persister in self.graph.persisters}
        )

    def records(self, topic: str) -> Content:
        """Return what a `read_committed` reader finds in a topic.

        Headers do not count: those of dead letters name offsets, which differ between a topic and
        the files that stand for it.
        """
        found: Content = Counter()
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        for (_, number), messages in read_ranges(self.settings, self.admin.log_bounds(partitions)):
            found.update(
                digest_of(str(number), m.key(), m.value(), m.timestamp()[1], None) for m in messages
            )
        return found

    def rows(self) -> Content:
        """Return the rows of the application's table."""
        settings = DatabaseSettings(dsn=SecretStr(self.server.dsn))
        database = Database(settings, application_name="eosframework demo backfill")
        with (
            translating(f"read table {TABLE} of {self.name}"),
            closing(database.connect(autocommit=True)) as connection,
        ):
            return Counter(text.encode() for (text,) in connection.execute(_ROWS))
