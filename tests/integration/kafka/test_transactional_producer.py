"""The drop-in producer against a real broker: confluent_kafka's API, and what it adds."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.embedded import start_kafka
from eosframework.errors import ClusterUnreachable, StartRefused, TaskFenced
from eosframework.kafka.consumer.read_committed import ReadCommittedConsumer
from eosframework.kafka.producer.producer_states import ProducerState
from eosframework.kafka.producer.transactional import TransactionalProducer
from tests.conftest import SMALL_BROKER, KafkaService
from tests.support.applications.pipeline import Pipeline, read_committed, wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.kafka_versions import kafka_before_4
from tests.support.servers.topics import create_topics


@pytest.fixture
def topic(kafka: KafkaService, topic_name: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    create_topics(admin, [NewTopic(topic_name, 1, 1)])
    return topic_name


@pytest.fixture
def make(kafka: KafkaService, topic: str) -> Iterator[Callable[..., TransactionalProducer]]:
    """Make producers with one transactional.id, and close them."""
    made: list[TransactionalProducer] = []

    def make_one(**options: Any) -> TransactionalProducer:
        # What is still open is ended by the producer: the broker would wait longer than the tests.
        config = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": topic,
            "transaction.timeout.ms": 600_000,
        }
        producer = TransactionalProducer(config, **options)
        made.append(producer)
        producer.init_transactions(60)
        return producer

    yield make_one
    for producer in made:
        producer.close()


def values(kafka: KafkaService, topic: str) -> list[bytes | None]:
    return [message.value() for message in read_committed(kafka.bootstrap_servers, topic)]


def stable_end(kafka: KafkaService, topic: str) -> int:
    consumer = ReadCommittedConsumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic}
    )
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1]
    finally:
        consumer.close()


def written_for_confluent_kafka(
    producer_class: Any, consumer_class: Any, bootstrap_servers: str, topic: str
) -> list[Any]:
    """Uses the producer and consumer as code for confluent_kafka does; returns what it saw."""
    delivered: list[tuple[Any, bytes | None]] = []
    producer = producer_class(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": f"{topic}.id"}
    )
    consumer = consumer_class(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"{topic}.group",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer.init_transactions(60.0)
    producer.begin_transaction()
    producer.produce(
        topic,
        key="k",
        value="v",
        timestamp=1234,
        headers={"h": b"1"},
        on_delivery=lambda error, message: delivered.append((error, message.value())),
    )
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata(), 30.0
    )
    producer.commit_transaction(60.0)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    left = producer.flush(60)
    producer.abort_transaction(60.0)
    try:
        producer.commit_transaction(5)
        refused = None
    except KafkaException as error:
        refused = error.args[0].code()
    (message,) = consumer.consume(1, 60)
    committed = consumer.committed([TopicPartition(topic, 0)], timeout=60)[0].offset
    known = topic in producer.list_topics(timeout=60).topics
    producer.close()
    consumer.close()
    seen = (message.key(), message.value(), message.timestamp(), message.headers())
    return [delivered, left, refused, seen, committed, known]


def test_code_written_for_confluent_kafka_runs_the_same(
    kafka: KafkaService, topic: str, unique_name: Callable[[str], str]
) -> None:
    other = unique_name("plain")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    create_topics(admin, [NewTopic(other, 1, 1)])
    ours = written_for_confluent_kafka(
        TransactionalProducer, ReadCommittedConsumer, kafka.bootstrap_servers, topic
    )
    theirs = written_for_confluent_kafka(Producer, Consumer, kafka.bootstrap_servers, other)
    assert ours == theirs
    assert ours[3] == (b"k", b"v", (1, 1234), [("h", b"1")])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_abort_fences_what_the_old_producer_has_in_flight(
    kafka: KafkaService, topic: str, make: Callable[..., TransactionalProducer]
) -> None:
    from kafka.admin import KafkaAdminClient

    producer = make()
    # The stubs of kafka-python are of version 2, which had no such methods.
    admin: Any = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)

    def epoch() -> int:
        return admin.describe_transactions([topic])[topic].producer_epoch

    before, old = epoch(), producer.produce
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.abort_transaction(60)
    assert epoch() > before
    assert producer.produce != old
    admin.close()


def test_a_producer_closed_with_an_open_transaction_leaves_nothing_open(
    kafka: KafkaService, topic: str, make: Callable[..., TransactionalProducer]
) -> None:
    producer = make()
    producer.begin_transaction()
    producer.produce(topic, b"never")
    assert producer.flush(60) == 0
    assert stable_end(kafka, topic) == 0
    producer.close()
    wait_until(lambda: stable_end(kafka, topic) == 2, "the record and its marker")
    assert values(kafka, topic) == []


def test_a_zombie_is_fenced_and_its_records_stay_invisible(
    kafka: KafkaService, topic: str, make: Callable[..., TransactionalProducer]
) -> None:
    zombie = make()
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie")
    zombie.flush(60)
    with make().transaction(60) as successor:
        successor.produce(topic, b"successor")
    with pytest.raises(TaskFenced) as fenced:
        zombie.commit_transaction(60)
    assert isinstance(fenced.value, KafkaException)
    assert zombie.state is ProducerState.FENCED
    for call in (zombie.begin_transaction, zombie.abort_transaction, zombie.commit_transaction):
        with pytest.raises(TaskFenced):
            call()
    assert values(kafka, topic) == [b"successor"]


def test_a_zombie_that_produces_learns_that_it_is_fenced(
    topic: str, make: Callable[..., TransactionalProducer]
) -> None:
    zombie = make()
    zombie.begin_transaction()
    zombie.produce(topic, b"one", on_delivery=lambda error, message: None)
    zombie.flush(60)
    make()

    def go_on() -> None:
        while True:
            zombie.produce(topic, b"more", on_delivery=lambda error, message: None)
            zombie.flush(60)

    with pytest.raises(TaskFenced):
        go_on()


def test_a_block_that_raises_is_aborted_and_its_error_is_not_hidden(
    kafka: KafkaService, topic: str, make: Callable[..., TransactionalProducer]
) -> None:
    producer = make()

    def fail() -> None:
        with producer.transaction(60):
            producer.produce(topic, b"aborted")
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        fail()
    assert producer.state is ProducerState.READY
    with producer.transaction(60):
        producer.produce(topic, b"committed")
    assert values(kafka, topic) == [b"committed"]


def test_producing_outside_a_transaction_is_refused(
    topic: str, make: Callable[..., TransactionalProducer]
) -> None:
    producer = make()
    with pytest.raises(KafkaException) as refused:
        producer.produce(topic, b"outside")
    assert refused.value.args[0].code() == KafkaError._STATE
    with pytest.raises(KafkaException, match="begin_transaction"):
        producer.commit_transaction()


def test_replaced_producers_are_freed_without_the_garbage_collector(
    make: Callable[..., TransactionalProducer], topic: str
) -> None:
    """Each takes one of the 1024 thread-local keys of a process; a worker collects rarely."""

    def alive() -> int:
        return sum(isinstance(found, Producer) for found in gc.get_objects())

    producer = make()
    before = alive()
    gc.disable()
    try:
        for turn in range(6):
            with producer.transaction(60):
                producer.produce(topic, b"value")
            producer.recycle(60)
            producer.begin_transaction()
            producer.produce(topic, b"value")
            producer.abort_transaction(60)
            assert producer.state is ProducerState.READY, turn
        wait_until(lambda: alive() <= before, "the closing of discarded producers")
    finally:
        gc.enable()


def test_an_idle_producer_does_not_gather_statistics(
    make: Callable[..., TransactionalProducer],
) -> None:
    producer = make(**{"statistics.interval.ms": 50})
    unread = [len(producer)]

    def fewer_than_before() -> bool:
        unread.append(len(producer))
        return unread[-1] < unread[-2]

    wait_until(fewer_than_before, "the background thread's turn")


OLD = r"broker 1 has inter\.broker\.protocol\.version=3\.9-IV0.*expected Kafka 4\.0 or later"


@pytest.mark.parametrize("setting", ["false"])
def test_brokers_that_do_not_verify_transactions_are_refused(tmp_path: Path, setting: str) -> None:
    name = "transaction.partition.verification.enable"
    with start_kafka(
        tmp_path, fast_start=True, properties={**SMALL_BROKER, name: setting}
    ) as cluster:
        producer = TransactionalProducer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "refused"}
        )
        with pytest.raises(StartRefused, match=f"{name}=false, expected true"):
            producer.init_transactions(60)
        assert producer.state is ProducerState.NEW
        producer.close()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_brokers_older_than_kafka_4_are_refused_by_a_producer_and_a_worker(tmp_path: Path) -> None:
    """They verify, and still their group coordinator loses offsets to a late frame."""
    with (
        kafka_before_4(),
        start_kafka(tmp_path / "kafka", fast_start=True, properties=SMALL_BROKER) as cluster,
    ):
        producer = TransactionalProducer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "refused"}
        )
        with pytest.raises(StartRefused, match=OLD):
            producer.init_transactions(60)
        producer.close()
        pipeline = Pipeline(cluster.bootstrap_servers, "old", tmp_path / "old", partitions=1)
        refused = pipeline.start_worker(until_caught_up=True)
        assert refused.wait() == 2
        assert re.search(OLD, refused.log)


def test_an_unreachable_cluster_is_said_to_be_one() -> None:
    with (
        TransactionalProducer(
            {"bootstrap.servers": "127.0.0.1:1", "transactional.id": "nobody"}
        ) as producer,
        pytest.raises(ClusterUnreachable, match=r"127\.0\.0\.1:1"),
    ):
        producer.init_transactions(0.5)
