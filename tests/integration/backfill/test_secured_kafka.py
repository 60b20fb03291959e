"""Spark reads from brokers that ask who connects, with what the settings say to librdkafka."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from confluent_kafka import Message, Producer

from eosframework.config import KafkaSettings, Settings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.client.properties import Role, client_properties
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.records import TopicPartition
from eosframework.spark import both, kafka_sink, table_sink
from eosframework.spark.job.job_entry import OffsetRange
from eosframework.spark.session.spark_rows import kafka_rows
from tests.support.processes.waiting import wait_until
from tests.support.servers.databases import DATABASE_PASSWORD
from tests.support.servers.secured_kafka import (
    KEY_PASSWORD,
    PASSWORD,
    USER,
    SecuredKafka,
    secured_kafka,
)
from tests.support.verifiers.messages import position_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "secured"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured") / "kafka", TOPIC) as started:
        yield started


def settings_of(broker: SecuredKafka, way: str) -> KafkaSettings:
    authority = {"ssl.ca.location": str(broker.directory / "ca.pem")}
    if way == "certificate":
        own = {
            "security.protocol": "ssl",
            "ssl.certificate.location": str(broker.directory / "client.pem"),
            "ssl.key.location": str(broker.directory / "client.key"),
            "ssl.key.password": KEY_PASSWORD,
        }
        return KafkaSettings(
            bootstrap_servers=broker.with_certificate, properties={**authority, **own}
        )
    own = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": way,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    return KafkaSettings(bootstrap_servers=broker.with_password, properties={**authority, **own})


def plans(rows: DataFrame) -> str:
    jdf: Any = rows._jdf
    execution = jdf.queryExecution()
    return f"{execution.toString()} {execution.logical().treeString()}"


class EventLog:
    """Spark's event log, from here on; it has the plans, options and properties of all jobs."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        [self._file] = directory.iterdir()
        self._context = spark.sparkContext
        self._first = len(self._file.read_text())

    def whole(self) -> str:
        """Return the log with the properties of the context, once all jobs are in it."""
        last = f"last-{uuid.uuid4().hex}"
        self._context.setJobGroup(last, last)
        self._context.parallelize([1], 1).count()
        jobs = re.compile(rf'"Event":"SparkListenerJobStart","Job ID":(\d+).*{last}')

        def is_complete() -> bool:
            text = self._file.read_text()
            found = jobs.search(text)
            return found is not None and f'"SparkListenerJobEnd","Job ID":{found[1]},' in text

        wait_until(is_complete, "the last job in Spark's event log")
        text = self._file.read_text()
        assert "SparkListenerSQLExecutionStart" in text[self._first :]
        return text


@pytest.mark.parametrize(
    "way",
    [
        "PLAIN",
        pytest.param("SCRAM-SHA-512", marks=pytest.mark.exhaustive),
        pytest.param("certificate", marks=pytest.mark.exhaustive),
    ],
)
def test_what_lets_librdkafka_in_lets_spark_in_and_no_secret_is_shown(
    spark: SparkSession,
    spark_events: Path,
    broker: SecuredKafka,
    way: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings, events = settings_of(broker, way), EventLog(spark, spark_events)
    producer = Producer(client_properties(settings, Role.PRODUCER))
    written: list[Message] = []
    producer.produce(TOPIC, way.encode(), on_delivery=lambda _, message: written.append(message))
    assert producer.flush(60) == 0

    _, _, offset = position_of(written[0])
    range_ = OffsetRange(first=offset, end=offset + 1)
    rows = kafka_rows(spark, settings, {TopicPartition(TOPIC, 0): range_})

    assert [bytes(row["value"]) for row in rows.collect()] == [way.encode()]
    key = (broker.directory / "client.key").read_text().splitlines()[1]
    logged = events.whole()
    assert TOPIC in logged
    said = "".join(capfd.readouterr()) + plans(rows) + logged
    for secret in (PASSWORD, KEY_PASSWORD, key, "LoginModule"):
        assert secret not in said


@pytest.mark.exhaustive
def test_sinks_write_with_what_lets_clients_in_and_no_secret_is_shown(
    spark: SparkSession,
    spark_events: Path,
    broker: SecuredKafka,
    secret_dsn: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings, events = settings_of(broker, "SCRAM-SHA-512"), EventLog(spark, spark_events)
    admin, written = ClusterAdmin(settings), TopicPartition("sunk", 0)
    admin.create_topics([TopicToCreate(written.topic, 1)])
    rows = spark.range(20).selectExpr("CAST(id AS string) AS key", "id AS n")
    sink = kafka_sink(
        written.topic,
        application="secured-sinks",
        key="key",
        value="n",
        shards=2,
        settings=Settings(kafka=settings),
    )
    with psycopg.connect(secret_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE sunk (key text, n bigint)")
        table = table_sink("sunk", application="secured-sinks", dsn=secret_dsn, shards=2)
        both(sink, table).write(rows, job="once", directory=str(tmp_path))
        assert connection.execute("SELECT count(*) FROM sunk").fetchone() == (20,)

    found = [
        (message.key(), message.value())
        for _, messages in read_ranges(settings, admin.log_bounds([written]))
        for message in messages
    ]
    assert sorted(found) == sorted((b"%d" % n, b"%d" % n) for n in range(20))
    said = "".join(capfd.readouterr())
    assert "batch_complete" in said
    said += events.whole()
    for secret in (PASSWORD, KEY_PASSWORD, DATABASE_PASSWORD, "LoginModule"):
        assert secret not in said


def test_a_password_that_is_wrong_is_no_reason_to_read_on(
    spark: SparkSession, broker: SecuredKafka
) -> None:
    settings = settings_of(broker, "PLAIN")
    wrong = settings.model_copy(
        update={"properties": {**settings.properties, "sasl.password": "guessed"}}
    )
    rows = kafka_rows(spark, wrong, {TopicPartition(TOPIC, 0): OffsetRange(first=0, end=1)})
    with pytest.raises(Exception, match="SaslAuthenticationException"):
        rows.collect()
