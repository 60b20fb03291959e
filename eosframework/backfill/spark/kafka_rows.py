"""Closed ranges of Kafka topics as rows: one Spark partition for each partition, in offset order.

Spark's own connector reads them, `read_committed`: records of aborted transactions, control records
and compacted records have offsets and no rows, so a range has fewer rows than offsets. A range with
records deleted by retention fails the job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from eosframework.backfill.job.job_entry import OffsetRange
from eosframework.backfill.spark.java_properties import java_properties
from eosframework.backfill.spark.spark_rows import empty_rows
from eosframework.config import KafkaSettings
from eosframework.records import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "unix_millis(timestamp) AS timestamp",
    "key",
    "value",
    "headers",
)


def kafka_rows(
    spark: SparkSession,
    settings: KafkaSettings,
    ranges: Mapping[TopicPartition, OffsetRange],
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the records of the ranges as rows (`spark_rows.ROW_SCHEMA`).

    Args:
        spark: a session of the backfill.
        settings: the cluster.
        ranges: by partition; an empty one has no Spark partition.
        options: for the Java client, as `kafka.NAME`; they override the settings.

    Raises:
        ConfigurationError: a property of the settings has no counterpart in Java.
    """
    properties = java_properties(settings, options or {})
    read = {source: part for source, part in ranges.items() if part.first < part.end}
    if not read:
        return empty_rows(spark)
    chosen = {
        "assign": {topic: sorted(of_topic) for topic, of_topic in _by_topic(read).items()},
        "startingOffsets": _by_topic({source: part.first for source, part in read.items()}),
        "endingOffsets": _by_topic({source: part.end for source, part in read.items()}),
    }
    reader = spark.read.format("kafka").options(**properties)
    reader = reader.options(**{name: json.dumps(value) for name, value in chosen.items()})
    reader = reader.options(includeHeaders="true", failOnDataLoss="true")
    return reader.load().selectExpr(*_COLUMNS)


def _by_topic(values: Mapping[TopicPartition, T]) -> dict[str, dict[int, T]]:
    found: dict[str, dict[int, T]] = {}
    for source, value in values.items():
        found.setdefault(source.topic, {})[source.partition] = value
    return found
