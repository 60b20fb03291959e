"""Entries of a control topic on a real broker, among thousands of others and foreign ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import Producer

from eosframework.application.control_topic import ControlTopic
from eosframework.application.journal import DECIDED_SECONDS, FIRST_TAIL_RECORDS, KafkaJournal
from eosframework.config import KafkaSettings, Settings
from eosframework.errors import ControlTopicDamaged
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.client.properties import Role, client_properties
from eosframework.spark.job.job_entry import TaskProgress, task_key
from eosframework.spark.sinks.kafka.columns import KafkaColumns
from eosframework.spark.sinks.kafka.driver import KafkaSinkOptions
from eosframework.spark.sinks.kafka.sink_log import batch_claim, shards_in
from eosframework.spark.sinks.sink_entry import BatchIdentity, batch_key, shards_prefix
from eosframework.topology.graph.graph import OnError

Entries = Iterable[tuple[str, bytes]]


class World:
    """An application without workers."""

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self.name = name
        self.settings = Settings(kafka=KafkaSettings(bootstrap_servers=bootstrap_servers))
        self.admin = ClusterAdmin(self.settings.kafka)
        topic = ControlTopic(name, self.settings.kafka, self.admin)
        topic.ensure()
        self.topic = topic.topic

    def journal(self) -> KafkaJournal:
        return KafkaJournal(self.name, self.settings.kafka, self.admin, settle_seconds=20)

    def write(self, entries: Entries) -> None:
        producer = Producer(client_properties(self.settings.kafka, Role.PRODUCER))
        for key, value in entries:
            producer.produce(self.topic, value, key)
        assert producer.flush(60) == 0

    def begin(self, entries: Entries) -> Callable[[], None]:
        """Write entries in a transaction, and return the function that aborts it."""
        properties = client_properties(self.settings.kafka, Role.PRODUCER)
        producer = Producer({**properties, "transactional.id": f"{self.name}-foreign"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for key, value in entries:
            producer.produce(self.topic, value, key)
        assert producer.flush(60) == 0
        return lambda: producer.abort_transaction(60)


@pytest.fixture
def world(kafka: Any, unique_name: Callable[[str], str]) -> World:
    return World(kafka.bootstrap_servers, unique_name("job-app"))


def test_a_sign_of_life_counts_among_the_entries_of_hundreds_of_tasks(world: World) -> None:
    journal = world.journal()
    key, other, unwritten = (task_key("job", "part", number) for number in range(3))
    found = TaskProgress(
        positions={"in/0": 7}, metadata="eos1;0;0", attempt="host/1@run", written_at=0
    )
    journal.write({key: found.to_entry()})
    place = journal.newest([key])
    [(offset, _)] = place.values()
    world.write([(other, b"{}")] * (9 * FIRST_TAIL_RECORDS + 1))
    assert journal.newest([key]) == place == {key: (offset, found.to_entry())}
    assert journal.newest([key], since=offset + 1) == {}
    assert journal.newest([unwritten]) == {}


FOREIGN = ["abc", "", "-1", "1/2", "9" * 5000]


@pytest.mark.exhaustive
def test_foreign_records_under_the_keys_of_shards_are_no_shards(
    world: World, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("out")
    world.admin.create_topics([TopicToCreate(topic, 1)])
    columns = KafkaColumns(topic, None, None, "value", None, None, None)
    options = KafkaSinkOptions(
        world.name,
        "s",
        columns,
        shards=1,
        stage=False,
        follows=None,
        settings=world.settings,
        on_error=OnError(),
    )
    foreign = [(shards_prefix("s") + name, b"{}") for name in FOREIGN]
    world.write(foreign)
    abort = world.begin(foreign)
    threading.Timer(4 * DECIDED_SECONDS, abort).start()
    offered = BatchIdentity(query="q", number=0, range="r")
    options.own(offered).close()  # reads the keys of the open transaction, to end leftovers
    assert shards_in(world.journal(), "s", 1) == {}


def test_a_foreign_value_under_the_key_of_a_sink_is_named(world: World) -> None:
    world.write([(batch_key("s"), b'{"sequence": "first"}')])
    claim = batch_claim(world.name, "s")
    with pytest.raises(ControlTopicDamaged, match=r"SinkBatch \(sequence: .*last good value"):
        claim.of(world.journal().settled([claim.key]))
