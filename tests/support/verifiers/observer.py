"""What brokers show to anybody: committed records, the group's position, open transactions.

Shares nothing with the producers that it judges, and asks the brokers without a proxy.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.kafka.inspect.coordinators import find_transaction
from eosframework.kafka.inspect.formats import TxnState
from eosframework.kafka.inspect.wire import Wire
from tests.support.applications.pipeline import COORDINATOR_MOVES, wait_until
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

GROUP = "stragglers"
ENDED_SECONDS = 30.0
"""After an end was decided, its markers follow within milliseconds, on a busy machine within
seconds. What nobody ends is ended by the brokers after a minute, the default of librdkafka."""

_ENDING = (
    TxnState.PREPARE_COMMIT,
    TxnState.PREPARE_ABORT,
    TxnState.PREPARE_EPOCH_FENCE,
)


class Partition(NamedTuple):
    """A partition of an output."""

    topic: str
    number: int


NEAR = (Partition("left", 0), Partition("right", 0))
"""Every transaction writes to these first."""
FAR = (Partition("left", 1), Partition("left", 2))
"""On three brokers one of these has a leader that has none of `NEAR`."""
ALL = (*NEAR, *FAR)
SOURCE = TopicPartition("left", 0)
"""The group's position is one in this partition: any that exists will do."""


@dataclass(frozen=True)
class Seen:
    """Committed values by partition, in their order."""

    values: Mapping[Partition, list[bytes]]

    def values_of_all(self) -> list[bytes]:
        """The values of all partitions."""
        return list(itertools.chain.from_iterable(self.values.values()))


class Observer:
    """Looks at the outputs and the group of one cluster.

    Args:
        bootstrap_servers: not through a proxy.
        nodes: the topics are spread over so many.
    """

    def __init__(self, bootstrap_servers: str, nodes: int) -> None:
        self._make_topics(bootstrap_servers, nodes)
        common = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "enable.auto.commit": False,
        }
        reading = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
        self._reader = Consumer({**common, **reading, "isolation.level": "read_committed"})
        self._other = Consumer({**common, "isolation.level": "read_uncommitted"})
        self._wire = Wire(KafkaSettings(bootstrap_servers=bootstrap_servers))
        wait_until(self._has_coordinator, "the group's coordinator")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._other.close()
        self._wire.close()

    def ends(self) -> dict[Partition, int]:
        """Where each partition ends now, for readers of everything."""
        return {p: self._end(self._other, p) for p in ALL}

    def read(self, starts: Mapping[Partition, int]) -> Seen:
        """Read what is committed from `starts` on."""
        stable = {p: self._end(self._reader, p) for p in ALL}
        reading = {p for p in ALL if starts[p] < stable[p]}
        self._reader.assign([TopicPartition(*p, starts[p]) for p in reading])
        values: dict[Partition, list[bytes]] = {p: [] for p in ALL}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while reading:
            assert time.monotonic() < deadline, f"{reading} have no end"
            for message in self._reader.consume(1, 0.5):
                partition = Partition(message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    values[partition].append(message.value() or b"")
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                # An end that an earlier look had asked for may still come, with its old offset.
                if (message.offset() or 0) >= stable[partition]:
                    reading.discard(partition)
        self._reader.unassign()
        return Seen(values)

    def position(self) -> int:
        """The committed position of the group, once no transaction can change it; 0: none."""
        (found,) = self._reader.committed([TopicPartition(SOURCE.topic, SOURCE.partition)], 60)
        return max(found.offset, 0)

    def to_commit(self, position: int) -> tuple[list[TopicPartition], Any]:
        """What a transaction sends to move the group to `position`."""
        positions = [TopicPartition(SOURCE.topic, SOURCE.partition, position)]
        return positions, self._other.consumer_group_metadata()

    def is_open(self, transactional_id: str) -> bool:
        """Whether its coordinator knows an open transaction."""
        found = find_transaction(self._wire, transactional_id)
        return found is not None and found.is_open

    def wait_until_settled(self, transactional_id: str) -> None:
        """Wait while its coordinator is ending a transaction."""

        def settled() -> bool:
            found = find_transaction(self._wire, transactional_id)
            return found is None or found.state not in _ENDING

        wait_until(settled, f"the end of the transaction of {transactional_id}")

    def is_all_ended(self, transactional_id: str) -> bool:
        """Whether nothing is open at the coordinator, nor in any partition, within a while."""
        deadline = time.monotonic() + ENDED_SECONDS
        while self.is_open(transactional_id) or any(
            self._end(self._reader, p) != self._end(self._other, p) for p in ALL
        ):
            if time.monotonic() > deadline:
                return False
        return True

    def _has_coordinator(self) -> bool:
        try:
            self.position()
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_MOVES:
                raise
            return False
        return True

    def _end(self, consumer: Consumer, partition: Partition) -> int:
        return consumer.get_watermark_offsets(TopicPartition(*partition), timeout=60)[1]

    @staticmethod
    def _make_topics(bootstrap_servers: str, nodes: int) -> None:
        leaders = [[1 + (first + n) % nodes for n in range(nodes)] for first in range(3)]
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        wanted = [
            NewTopic("left", 3, replica_assignment=leaders),
            NewTopic("right", 1, replica_assignment=leaders[1:2]),
        ]
        create_topics(admin, wanted)
