"""The backfill demo: an archive by Spark and the rest live, compared with live processing of all.

Owns the archive, the two worlds to compare, and the kills. It knows nothing of how a backfill
works: it runs a user's commands, and reads their results.

The flights in two parts: files with those known before the cutover, and live ones.
A file has the flights that became known in a month, in that order. A backfill reads files by event
time, path and row, so the live world must get the archived flights in this order.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from pydantic import SecretStr

from eosframework.config import DatabaseSettings, KafkaSettings
from eosframework.demo.feeds import (
    FEEDS,
    MONTHS,
    FedRecord,
    Row,
    example_file,
    known_at,
    landed,
    typed,
)
from eosframework.demo.services import Service, Workers
from eosframework.demo.stage import PARTITIONS
from eosframework.embedded import KafkaCluster, PostgresServer
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.client.plain_writes import feed
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.operations.audit.output_comparison import digest_of
from eosframework.postgres import Database, translating
from eosframework.records import Record, partitions_of
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve

_PROCESSES = 2
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
            self.topology, self._bootstrap_servers, _PROCESSES, self.log_file, self._environment
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


_MINUTE = 60_000
"""In milliseconds."""


@dataclass(frozen=True, slots=True)
class Span:
    """The period of flights: its bounds, and the cutover from archive to live."""

    since: datetime
    cutover: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Flights:
    """The flights of a span, by the time they became known.

    Args:
        archived: before the cutover, in the order in which a backfill reads the files.
        live: later, in the order in which they became known.
        files: the archived ones by file name, in file order.
    """

    archived: Sequence[FedRecord]
    live: Sequence[FedRecord]
    files: Mapping[str, Sequence[FedRecord]]

    @property
    def whole(self) -> list[FedRecord]:
        """All flights, as fed to a topic without a backfill."""
        return [*self.archived, *self.live]

    def write(self, directory: Path) -> list[Path]:
        """Write the archive, a file for each month, and return the files."""
        directory.mkdir()
        for name, records in self.files.items():
            _write_rows(directory / name, records)
        return [directory / name for name in self.files]


def flights_of(span: Span) -> Flights:
    """Return the flights of a span, in their two parts."""
    since, cutover, until = (
        int(moment.timestamp() * 1000) for moment in (span.since, span.cutover, span.until)
    )
    files: defaultdict[str, list[FedRecord]] = defaultdict(list)
    live: list[FedRecord] = []
    for record in landed():
        known = record[2]
        if since <= known < cutover:
            files[f"flights-{datetime.fromtimestamp(known / 1000, UTC):%Y-%m}.csv"].append(record)
        elif cutover <= known < until:
            live.append(record)
    return Flights(_as_read(files), live, dict(files))


def flight(row: dict[str, Any]) -> Record:
    """Return a row of the archive as the record fed live: the same bytes and time."""
    known = typed("flights", row)
    return Record(known["carrier"], known, known_at(known))


def _as_read(files: Mapping[str, Sequence[FedRecord]]) -> list[FedRecord]:
    placed = [
        (_departure(orjson.loads(record[1])), name, number, record)
        for name, records in files.items()
        for number, record in enumerate(records)
    ]
    placed.sort(key=lambda place: place[:3])
    return [record for *_, record in placed]


def _departure(row: Row) -> int:
    hour = datetime.fromisoformat(row["time_hour"])
    return int(hour.timestamp()) * 1000 + row["minute"] * _MINUTE


def _write_rows(path: Path, records: Sequence[FedRecord]) -> None:
    rows: list[Row] = [orjson.loads(value) for _, value, _ in records]
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
