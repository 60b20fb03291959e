"""The two worlds to compare: each a broker, a database, and the application on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
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
from eosframework.kafka.client.plain_writes import feed
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.operations.audit.record_digest import digest_of
from eosframework.postgres import Database, translating
from eosframework.records import partitions_of
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve

PROCESSES = 2
INPUT = "flights.landed"
TABLE = "hourly_delays"

Content = Counter[bytes]
"""Number of occurrences of each record or row, by digest or text."""

_ROWS = b"SELECT row_to_json(hourly_delays)::text FROM hourly_delays"


class World:
    """The example `delays` on its own servers.

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
        """Create the input topics, feed the tables, and return their sizes by topic."""
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
        """Return the number of offsets that workers have yet to commit, with control records."""
        partitions = partitions_of(dict.fromkeys(sorted(self.read), PARTITIONS))
        bounds = self.admin.log_bounds(partitions)
        committed = self.admin.committed(self.graph.application, partitions, stable=False)
        return sum(bounds[p.topic_partition][1] - (p.offset or 0) for p in committed)

    @property
    def read(self) -> set[str]:
        """Topics that tasks read, internal topics included."""
        return set(self.graph.source_topics)

    @property
    def outputs(self) -> list[str]:
        """Output topics that the application does not read itself."""
        written = set(self.graph.sink_topics)
        return sorted(written - self.read - set(self.graph.table_sink_topics))

    def records(self, topic: str) -> Content:
        """Return the records of a topic that a `read_committed` reader sees.

        Headers are ignored: those of dead letters contain offsets, which differ between a topic and
        files.
        """
        found: Content = Counter()
        partitions = partitions_of({topic: PARTITIONS})
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """One topic or table in both worlds.

    Args:
        expected: number of records or rows in the live world.
        missing: those missing in the backfilled world.
        extra: those only in the backfilled world.
    """

    name: str
    expected: int
    missing: int
    extra: int

    @property
    def equal(self) -> bool:
        """True if both worlds have the same records or rows, equally often."""
        return not self.missing and not self.extra


def compare(backfilled: Mapping[str, Content], live: Mapping[str, Content]) -> list[Comparison]:
    """Return the comparison of each topic and table, by name."""
    return [
        Comparison(
            name,
            live[name].total(),
            (live[name] - backfilled[name]).total(),
            (backfilled[name] - live[name]).total(),
        )
        for name in sorted({*backfilled, *live})
    ]


def counts(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """Return the totals over all topics and tables."""
    return {
        "compared": sum(one.expected for one in comparisons),
        "missing": sum(one.missing for one in comparisons),
        "extra": sum(one.extra for one in comparisons),
    }
