"""Histories of an application that tests write themselves, whole or damaged.

The outputs are written with confluent_kafka's own transactional producer, not by a worker, and
receipts are spelled out by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.operations.audit import Bound, Proof, Scope, Verdict, audit_application
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from tests.support.applications.feeding import feeder
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json, on_error: {dead_letter: NAME.dead}}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{topic: NAME.doubled, value: json}]
    on_error: {dead_letter: NAME.dead}
  tripled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:triple"}]
    to: [{topic: NAME.tripled, value: json}]
    on_error: {dead_letter: NAME.dead}
"""

PARTITIONS = 2
START = 1_700_000_000_000

NUMBERED = "r1"
"""What the metadata of a committed position calls a numbering."""

Written = tuple[str, int, bytes, bytes, int, list[tuple[str, bytes]]]
"""Topic, partition, key, value, timestamp, headers."""


@dataclass
class Application:
    """An application whose history the tests write themselves.

    Args:
        since: input offset at which the numbering of receipts begins.
    """

    bootstrap_servers: str
    name: str
    topology: Path
    since: int = 0

    @classmethod
    def create(cls, bootstrap_servers: str, name: str, directory: Path) -> Application:
        """Write the topology and make the topics."""
        topology = directory / f"{name}.yaml"
        topology.write_text(TOPOLOGY.replace("NAME", name))
        made = cls(bootstrap_servers, name, topology)
        made.create_topics()
        return made

    def create_topics(self) -> None:
        topics = ("in", "doubled", "tripled")
        keep = {"retention.ms": "-1"}  # event times lie in the past, and brokers delete by them
        wanted = [NewTopic(f"{self.name}.{t}", PARTITIONS, 1, config=keep) for t in topics]
        wanted.append(NewTopic(f"{self.name}.dead", 1, 1, config=keep))
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        create_topics(admin, wanted)

    def feed(self, count: int) -> None:
        producer = feeder(self.bootstrap_servers)
        for n in range(count):
            value = json.dumps({"n": n}).encode()
            producer.produce(
                f"{self.name}.in", value, str(n).encode(), n % PARTITIONS, timestamp=START + n
            )
        assert producer.flush(60) == 0

    def receipted(self, numbers: Iterable[int], *, transaction: int) -> list[Written]:
        """The outputs of numbers, each with its receipt."""
        return [
            (*written[:5], [("__eos.receipt", self.receipt(n, index, transaction).encode())])
            for n in numbers
            for index, written in enumerate(self.outputs_of([n]))
        ]

    def receipt(self, n: int, index: int, transaction: int) -> str:
        """Each number gives two outputs, so that those of a partition are numbered by two."""
        partition, offset = n % PARTITIONS, n // PARTITIONS
        since = offset - self.since
        number, gap = since * 2 + index, min(since, 1)
        place = f"{self.name}.in/{partition}/{offset}"
        return f"1/{self.name}/{self.since}/{place}/{index}/2/{number}/{gap}/{transaction}"

    def outputs_of(self, numbers: Iterable[int]) -> list[Written]:
        return [
            (
                f"{self.name}.{topic}",
                n % PARTITIONS,
                str(n).encode(),
                b'{"n":%d}' % (n * factor),
                START + n,
                [],
            )
            for n in numbers
            for topic, factor in (("doubled", 2), ("tripled", 3))
        ]

    def write(
        self,
        records: Iterable[Written],
        *,
        commit: int | None = None,
        abort: bool = False,
        transaction: int | None = None,
    ) -> None:
        """Write in one transaction; with the positions behind the first `commit` numbers.

        With the number of a `transaction` the positions say how far outputs are numbered.
        """
        producer = self.transactional_producer()
        producer.begin_transaction()
        for topic, partition, key, value, timestamp, headers in records:
            producer.produce(
                topic, value, key, partition, timestamp=timestamp, headers=list(headers)
            )
        if commit is not None:
            consumer = Consumer(
                {"bootstrap.servers": self.bootstrap_servers, "group.id": self.name}
            )
            positions = [self._position(p, commit, transaction) for p in range(PARTITIONS)]
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
            consumer.close()
        if abort:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)

    def _position(self, partition: int, commit: int, transaction: int | None) -> TopicPartition:
        offset = len(range(partition, commit, PARTITIONS))
        numbering = f"{NUMBERED};{self.since};{(offset - self.since) * 2};{offset - 1}"
        metadata = "" if transaction is None else f"eos1;{transaction};0;{numbering}"
        return TopicPartition(f"{self.name}.in", partition, offset, metadata)

    def transactional_producer(self, suffix: str = "") -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "transactional.id": f"writer.{self.name}{suffix}",
            }
        )
        producer.init_transactions(60)
        return producer

    def audit(
        self, start: str = "beginning", end: str = "end", proof: Proof = Proof.AUTO
    ) -> Verdict:
        graph = resolve(load_app(str(self.topology)))
        settings = KafkaSettings(bootstrap_servers=self.bootstrap_servers)
        scope = Scope(Bound.parse(start), Bound.parse(end))
        return audit_application(graph, settings, scope=scope, proof=proof)

    def faults(self) -> dict[str, int]:
        counts = self.audit().counts()
        return {k: n for k, n in counts.items() if n and k not in ("input", "output")}
