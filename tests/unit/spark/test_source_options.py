"""Options of the format `eos_kafka`, without Spark and without Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError
from eosframework.spark.data_source.kafka_options import kafka_settings
from eosframework.spark.data_source.source_options import check_names, job_of, sink_of
from eosframework.spark.session.java_properties import java_properties
from eosframework.spark.sinks.kafka.columns import KafkaColumns
from eosframework.spark.sinks.kafka.driver import KafkaSinkOptions
from eosframework.topology.graph.graph import OnError, Policy

KINDS = {"string": StringType(), "binary": BinaryType(), "int": IntegerType(), "bigint": LongType()}
BASE = KafkaSettings(bootstrap_servers="base:9092", properties={"client.rack": "a"})


def sink(schema: str, **options: str) -> KafkaSinkOptions:
    fields = [column.split() for column in schema.split(", ")]
    rows = StructType([StructField(name, KINDS[kind]) for name, kind in fields])
    [part] = sink_of({"topic": "delays", **options}, rows).parts
    assert isinstance(part, KafkaSinkOptions)
    return part


def columns(schema: str, **options: str) -> KafkaColumns:
    found = sink(schema, **options).columns
    assert isinstance(found, KafkaColumns)
    return found


@pytest.mark.parametrize(
    "properties",
    [
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "ssl.ca.pem": "CA"},
    ],
)
def test_settings_for_java_come_back_as_they_were(properties: dict[str, Any]) -> None:
    certificate = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"
    password = 'a"b\\c; required'
    given = {**properties, "sasl.username": "anna", "sasl.password": password}
    if "ssl.ca.pem" in given:
        given["ssl.ca.pem"] = certificate
    made = java_properties(KafkaSettings(bootstrap_servers="b:1", properties=given), {})
    fixed = ("kafka.isolation.level", "kafka.allow.auto.create.topics")
    back = kafka_settings(BASE, {k: v for k, v in made.items() if k not in fixed})
    assert back.bootstrap_servers == "b:1"
    assert back.properties == {"client.rack": "a", **given}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("kafka.ssl.truststore.location", "/x.jks", "has the type JKS, which librdkafka does not"),
        ("kafka.sasl.jaas.config", "com.sun.Krb5LoginModule required;", "has no PlainLoginModule"),
        ("kafka.enable.idempotence", "false", "would break the guarantee"),
    ],
)
def test_a_property_that_cannot_be_used_is_named(name: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        kafka_settings(BASE, {name: value})


def test_stores_that_librdkafka_reads_are_named_as_it_names_them() -> None:
    options = {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": "/me.p12",
        "kafka.ssl.keystore.password": "secret",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    assert kafka_settings(BASE, options).properties == {
        "client.rack": "a",
        "ssl.ca.location": "/ca.pem",
        "ssl.keystore.location": "/me.p12",
        "ssl.keystore.password": "secret",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match="no option 'on_eror'; did you mean 'on_error'"):
        check_names({"on_eror": "skip"})
    with pytest.raises(ConfigurationError, match="no option 'xyz'; expected one of topic, "):
        check_names({"xyz": "1"})


def test_without_columns_rows_are_json_and_those_for_sparks_sink_are_its_records() -> None:
    assert columns("n bigint, key string") == KafkaColumns(
        "delays", None, None, "struct", None, None, None
    )
    theirs = "key binary, value string, partition int, topic string"
    assert columns(theirs) == KafkaColumns(
        "delays", None, "key", "value", None, None, "partition"
    ), "the option wins, as with Spark's sink"
    assert columns("value string, n bigint", value="struct").value == "struct"
    with pytest.raises(ConfigurationError, match="does not read: n, key"):
        columns("value string, n bigint, key int")


def test_defaults_and_texts_become_arguments() -> None:
    part = sink("n bigint", on_error="dead_letter(delays.dead)", shards="3", name="de-lays")
    assert (part.application, part.sink, part.shards) == ("spark", "de-lays", 3)
    assert part.on_error == OnError(Policy.DEAD_LETTER, "delays.dead")
    assert sink("n bigint").sink == "delays"


def test_a_job_belongs_to_a_batch_write() -> None:
    assert job_of({"job": "x"}, streaming=False, overwrite=False) == "x"
    assert job_of({}, streaming=True, overwrite=True) is None
