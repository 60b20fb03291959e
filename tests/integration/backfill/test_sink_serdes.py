"""Values of a sink with schemas of a real registry, read by confluent_kafka's own deserializers."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from eosframework import avro, protobuf
from eosframework.config import KafkaSettings, RegistrySettings, Settings
from eosframework.errors import RunError
from eosframework.spark import kafka_sink
from tests.support.applications.schema_functions import FlightMessage
from tests.support.applications.spark_sinks import SinkWorld
from tests.support.servers.schema_registry import Registry

pytestmark = pytest.mark.exhaustive

HERE = "tests.support.applications.schema_functions"
AVRO: Any = AvroDeserializer
PROTOBUF: Any = ProtobufDeserializer
ROWS = "'c' || id AS carrier, CAST(id AS int) AS minutes"


def settings_of(world: SinkWorld, registry: Registry) -> Settings:
    return Settings(
        kafka=KafkaSettings(bootstrap_servers=world.servers),
        schema_registry=RegistrySettings(url=registry.url, auto_register=True),
    )


def test_values_are_avro_and_one_that_does_not_serialize_is_named(
    world: SinkWorld, registry: Registry
) -> None:
    settings = settings_of(world, registry)
    client = SchemaRegistryClient({"url": registry.url})
    rows = world.spark.range(20).selectExpr(*ROWS.split(", "))
    given: dict[str, tuple[Any, Any]] = {
        "avro": (avro(f"{HERE}:FLIGHT"), AVRO(client)),
        "model": (avro(f"{HERE}:GROWN", model=f"{HERE}:Flight"), AVRO(client)),
    }
    for name, (serde, read) in given.items():
        topic = f"{world.topic}.{name}"
        world.create(topic)
        sink = kafka_sink(
            topic, application=world.name, key="carrier", serde=serde, shards=2, settings=settings
        )
        sink.write(rows, job=name, directory=str(world.checkpoint))
        context = SerializationContext(topic, MessageField.VALUE)
        values = [read(message.value(), context) for message in world.read(topic)]
        assert sorted((v["carrier"], v["minutes"]) for v in values) == sorted(
            (f"c{n}", n) for n in range(20)
        )

    sink = kafka_sink(
        world.topic, application=world.name, serde=avro(f"{HERE}:FLIGHT"), settings=settings
    )
    wrong = world.spark.range(5).selectExpr("id AS carrier", "id AS minutes")
    with pytest.raises(RunError, match=r'a row does not serialize as avro.*the row is \{"carr'):
        sink.write(wrong, job="wrong", directory=str(world.checkpoint))
    assert not world.read(world.topic)


def test_values_are_messages_without_their_class_on_executors(
    world: SinkWorld, registry: Registry
) -> None:
    settings = settings_of(world, registry)
    sink = kafka_sink(
        world.topic,
        application=world.name,
        serde=protobuf(f"{HERE}:FlightMessage"),
        shards=2,
        settings=settings,
    )
    rows = world.spark.range(20).selectExpr("'c' || id AS carrier", "nullif(id, 3) AS minutes")
    sink.write(rows, job="messages", directory=str(world.checkpoint))
    read = PROTOBUF(FlightMessage, {}, SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext(world.topic, MessageField.VALUE)
    found: list[Any] = [read(message.value(), context) for message in world.read(world.topic)]
    assert sorted((one.carrier, one.minutes) for one in found) == sorted(
        (f"c{n}", 0 if n == 3 else n) for n in range(20)
    )

    wrong = world.spark.range(5).selectExpr("'c' AS carrier", "1 AS minute")
    with pytest.raises(RunError, match=r'does not serialize as protobuf.* has no "minute" field'):
        sink.write(wrong, job="wrong", directory=str(world.checkpoint))
    assert len(world.read(world.topic)) == 20
