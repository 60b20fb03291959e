"""An application that runs in this process to the end of its input, with receipts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

import eosframework
from eosframework.config import Settings, load_settings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.kafka.inspect.written_record import RecordPlace
from eosframework.operations.why import Cause, cause_of
from eosframework.records import TopicPartition
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from tests.support.applications.feeding import feeder
from tests.support.processes.commands import here
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

Fed = tuple[str, bytes | None, bytes | None, int]
"""Topic, key, value and timestamp."""


class Receipted:
    """The application of a file.

    Args:
        bootstrap_servers: of the broker.
        directory: for its file and its stores.
        text: of the file, a Python module with a topology.
        sources: topics to create, of one partition.
        receipts: workers write receipts.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        directory: Path,
        text: str,
        sources: Sequence[str],
        *,
        receipts: bool = True,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.bootstrap_servers = bootstrap_servers
        self.file = directory / "app.py"
        self.file.write_text(text)
        self.assignments = {
            "kafka.bootstrap_servers": bootstrap_servers,
            "state.directory": str(directory / "state"),
            "worker.receipts": receipts,
            "worker.commit_interval_seconds": 0.02,
            "worker.batch_records": 7,
        }
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        create_topics(admin, [NewTopic(topic, 1, 1) for topic in sources])
        applied = here("apply", str(self.file), "--bootstrap-server", bootstrap_servers)
        assert applied.exit_code == 0, applied.err
        self.graph = resolve(load_app(str(self.file)))

    @property
    def settings(self) -> Settings:
        """The settings of the workers."""
        return load_settings(None, [f"{k}={v}" for k, v in self.assignments.items()])

    def feed(self, records: Sequence[Fed]) -> None:
        """Write records to partition 0 of their topics."""
        producer = feeder(self.bootstrap_servers)
        for topic, key, value, timestamp in records:
            producer.produce(topic, value, key, 0, timestamp=timestamp)
        producer.flush()

    def run(self, **overrides: Any) -> None:
        """Run a worker to the end of the input."""
        settings = {**self.assignments, **overrides}
        eosframework.run(str(self.file), overrides=settings, until_caught_up=True)

    def places(self, topic: str) -> list[RecordPlace]:
        """Return the places of the committed records of a topic."""
        partition = TopicPartition(topic, 0)
        bounds = ClusterAdmin(self.settings.kafka).log_bounds([partition])
        return [
            RecordPlace(partition, message.offset())
            for _, messages in read_ranges(self.settings.kafka, bounds)
            for message in messages
        ]

    def causes(self, places: Sequence[RecordPlace]) -> Iterator[Cause]:
        """Yield the cause of each record."""
        return (cause_of(place, self.settings, self.graph) for place in places)

    def why(self, place: object, *options: str, app: bool = True) -> Any:
        """Run the command about a record."""
        given = [str(self.file)] if app else []
        return here(
            "why", str(place), *given, "--bootstrap-server", self.bootstrap_servers, *options
        )
