"""What Spark gives a task is in the order in which the live worker takes it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.config import KafkaSettings
from eosframework.engine.task.input_queues import Pending, TimestampQueue
from eosframework.records import TopicPartition
from eosframework.serialization.serdes import INTEGER
from eosframework.spark.job.job_entry import OffsetRange
from eosframework.spark.session.executors import pack
from eosframework.spark.session.ordering import in_task_order, task_slots
from eosframework.spark.session.spark_rows import kafka_rows
from eosframework.testing import Sent
from eosframework.topology.graph.graph import Function, Graph, OnError, Source, SubTopology
from eosframework.transactions.ports import Message
from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 4


class Log:
    """Topics with records at random times, in a real log and in memory."""

    def __init__(self, kafka: KafkaService, topics: list[str], seed: int) -> None:
        self.settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
        self.topics = topics
        self.records: dict[TopicPartition, list[Sent]] = {}
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        create_topics(admin, [NewTopic(t, TASKS, 1) for t in topics])
        chosen = random.Random(seed)
        print(f"seed {seed}")
        producer = feeder(kafka.bootstrap_servers)
        for topic in topics:
            for number in range(TASKS):
                sent = [self._sent(topic, n, chosen) for n in range(chosen.choice([0, 1, 9, 30]))]
                self.records[TopicPartition(topic, number)] = sent
                for one in sent:
                    headers = one.headers_ or ()
                    producer.produce(
                        topic, one.value_, None, number, None, None, one.timestamp_, [*headers]
                    )
        assert producer.flush(60) == 0

    def _sent(self, topic: str, offset: int, chosen: random.Random) -> Sent:
        """The event time is in the value; that of the log says nothing."""
        value = INTEGER.encode(1000 + chosen.randrange(40))  # pyright: ignore[reportOptionalCall]
        mark: list[tuple[str, bytes | None]] = [(WRITER_HEADER, b"writer/%d" % chosen.randrange(3))]
        headers = mark if topic.endswith("own") else None
        return Sent(topic, value, None, 5_000 - offset, offset, headers)

    def rows(self, spark: SparkSession) -> list[DataFrame]:
        return [
            kafka_rows(
                spark,
                self.settings,
                {
                    partition: OffsetRange(first=0, end=len(sent))
                    for partition, sent in self.records.items()
                    if partition.topic == topic
                },
            )
            for topic in self.topics
        ]


def time_in(value: int) -> int:
    return value


def time_of(message: Message) -> int:
    return int.from_bytes(message.value() or b"", "big")


def graph_of(topics: list[str]) -> Graph:
    """One part writes the topic whose name ends so, the other reads all of them."""
    timestamp = Function("time_in", time_in)
    sources = [Source(t, t, INTEGER, INTEGER, timestamp, OnError()) for t in topics]
    own = tuple(topic for topic in topics if topic.endswith("own"))
    first = Source("first", "first", INTEGER, INTEGER, None, OnError())
    parts = SubTopology("first", (first,), own), SubTopology("all", tuple(sources), ())
    return Graph("app", parts)


def in_order(spark: SparkSession, log: Log) -> list[list[tuple[str, int, int | None, bytes]]]:
    """By Spark partition: topic, partition, offset and value of each row."""
    from pyspark.sql.functions import spark_partition_id

    graph = pack(graph_of(log.topics))
    rows = in_task_order(spark, log.rows(spark), graph, "all", TASKS)
    numbered = rows.select(spark_partition_id(), "topic", "partition", "offset", "value")
    found: list[list[tuple[str, int, int | None, bytes]]] = [[] for _ in range(TASKS)]
    for place, topic, partition, offset, value in numbered.collect():
        found[place].append((topic, partition, offset, bytes(value)))
    return found


def test_rows_of_several_topics_come_as_the_live_queue_gives_them(
    spark: SparkSession, kafka: KafkaService, topic_name: str
) -> None:
    topics = sorted(f"{topic_name}.{name}" for name in ("a", "b", "c"))
    log = Log(kafka, topics, seed=random.randrange(10**6))

    found = in_order(spark, log)

    assert len(found) == TASKS
    for number, part in enumerate(found):
        queue = TimestampQueue(
            {TopicPartition(t, number): time_of for t in topics},
            0.0,
            lambda: 0.0,
        )
        for topic in topics:
            partition = TopicPartition(topic, number)
            if sent := log.records[partition]:
                queue.add(Pending(partition, sent, None))
            queue.reached_end(partition, len(sent))
        taken: list[tuple[str, int, int | None, bytes]] = []
        while queue.is_ready():
            messages = queue.take(7).messages
            taken += [(m.topic(), number, m.offset(), m.value() or b"") for m in messages]
        assert part == taken


def test_what_several_tasks_wrote_into_an_own_topic_is_merged_by_time(
    spark: SparkSession, kafka: KafkaService, topic_name: str
) -> None:
    own = f"{topic_name}.own"
    log = Log(kafka, [own], seed=random.randrange(10**6))

    found = in_order(spark, log)

    for number, part in enumerate(found):
        latest: dict[bytes | None, int] = {}
        keys: list[tuple[int, bytes | None, int, bytes]] = []
        for one in log.records[TopicPartition(own, number)]:
            assert one.headers_ is not None
            writer = one.headers_[0][1]
            latest[writer] = max(time_of(one), latest.get(writer, 0))
            keys.append((latest[writer], writer, one.offset_, one.value_ or b""))
        assert part == [(own, number, None, value) for _, _, _, value in sorted(keys)]


def test_every_task_has_a_spark_partition_of_its_own(spark: SparkSession) -> None:
    for tasks in (1, 7, 300):
        slots = task_slots(spark, tasks)
        listed = ",".join(f"({slot})" for slot in slots)
        hashed = spark.sql(
            f"SELECT slot, pmod(hash(slot), {tasks}) FROM VALUES {listed} AS t(slot)"
        )
        assert dict(map(tuple, hashed.collect())) == dict(zip(slots, range(tasks), strict=True))
