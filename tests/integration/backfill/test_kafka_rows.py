"""Ranges of real topics as Spark reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Removed
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.records import TopicPartition
from eosframework.spark.job.job_entry import OffsetRange
from eosframework.spark.session.spark_rows import kafka_rows
from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def settings(kafka: KafkaService) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)


@pytest.fixture
def topic(kafka: KafkaService, topic_name: str) -> str:
    make_topic(kafka, topic_name)
    return topic_name


def make_topic(kafka: KafkaService, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    create_topics(admin, [NewTopic(name, 2, 1, config=config)])


def transactional_producer(kafka: KafkaService, name: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"writer-{name}"}
    )
    producer.init_transactions(60)
    return producer


def read(spark: SparkSession, settings: KafkaSettings, ranges: dict[TopicPartition, OffsetRange]):
    rows = kafka_rows(spark, settings, ranges)
    return rows, [row.asDict(recursive=True) for row in rows.collect()]


def test_every_part_of_a_record_arrives(
    spark: SparkSession, kafka: KafkaService, settings: KafkaSettings, topic: str
) -> None:
    producer = feeder(kafka.bootstrap_servers)
    producer.produce(
        topic, b"v", b"k", 1, timestamp=1_700_000_000_123, headers=[("h", b"1"), ("h", None)]
    )
    producer.produce(topic, None, b"", 1, timestamp=5)
    assert producer.flush(60) == 0

    rows, found = read(spark, settings, {TopicPartition(topic, 1): OffsetRange(first=0, end=2)})

    assert rows.rdd.getNumPartitions() == 1
    assert found == [
        {
            "topic": topic,
            "partition": 1,
            "offset": 0,
            "timestamp": 1_700_000_000_123,
            "key": b"k",
            "value": b"v",
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        },
        {
            "topic": topic,
            "partition": 1,
            "offset": 1,
            "timestamp": 5,
            "key": b"",
            "value": None,
            "headers": None,
        },
    ]


def test_aborted_records_and_markers_are_no_rows_and_nothing_waits_for_them(
    spark: SparkSession, kafka: KafkaService, settings: KafkaSettings, topic: str
) -> None:
    producer = transactional_producer(kafka, topic)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(topic, b"%d" % number, partition=0)
        if number % 2:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)

    whole = {TopicPartition(topic, 0): OffsetRange(first=0, end=36)}
    _, found = read(spark, settings, whole)
    assert [row["value"] for row in found] == [b"0"] * 5 + [b"2"] * 5 + [b"4"] * 5
    assert [row["offset"] for row in found] == [*range(5), *range(12, 17), *range(24, 29)]

    _, only_gaps = read(spark, settings, {TopicPartition(topic, 0): OffsetRange(first=29, end=36)})
    assert only_gaps == []


def test_ranges_are_read_as_they_are_and_empty_ones_not_at_all(
    spark: SparkSession,
    kafka: KafkaService,
    settings: KafkaSettings,
    topic: str,
    unique_name: Callable[[str], str],
) -> None:
    other = unique_name("topic")
    make_topic(kafka, other)
    producer = feeder(kafka.bootstrap_servers)
    for name in (topic, other):
        for number in range(20):
            producer.produce(name, b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0

    rows, found = read(
        spark,
        settings,
        {
            TopicPartition(topic, 0): OffsetRange(first=3, end=6),
            TopicPartition(topic, 1): OffsetRange(first=4, end=4),
            TopicPartition(other, 1): OffsetRange(first=9, end=10),
        },
    )

    assert rows.rdd.getNumPartitions() == 2
    assert [(row["topic"], row["partition"], row["offset"]) for row in found] == [
        *((topic, 0, offset) for offset in range(3, 6)),
        (other, 1, 9),
    ]


def test_a_range_of_which_retention_removed_something_is_not_read_as_if_it_were_whole(
    spark: SparkSession, kafka: KafkaService, settings: KafkaSettings, topic: str
) -> None:
    producer = feeder(kafka.bootstrap_servers)
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    removed = Removed(topic, 0, 5)
    admin.delete_records([removed])[removed].result(60)

    left = {TopicPartition(topic, 0): OffsetRange(first=5, end=10)}
    assert len(read(spark, settings, left)[1]) == 5
    whole = {TopicPartition(topic, 0): OffsetRange(first=0, end=10)}
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS|OffsetOutOfRange"):
        read(spark, settings, whole)


def test_without_any_range_there_are_rows_of_the_same_form_and_none_of_them(
    spark: SparkSession, settings: KafkaSettings, topic: str
) -> None:
    whole = {TopicPartition(topic, 0): OffsetRange(first=0, end=1)}
    empty = {TopicPartition(topic, 0): OffsetRange(first=7, end=7)}

    rows, found = read(spark, settings, empty)

    assert found == []
    assert rows.mapInArrow(lambda batches: batches, rows.schema).collect() == []
    theirs = kafka_rows(spark, settings, whole).schema
    assert [f.name for f in rows.schema] == [f.name for f in theirs]
    assert [f.dataType.simpleString() for f in rows.schema] == [
        f.dataType.simpleString() for f in theirs
    ]
