"""`format("eos_kafka")` on real Spark and Kafka: each record once, whatever fails around a commit."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.applications.spark_sinks import SinkWorld

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException

from eosframework.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def source(world: SinkWorld, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SinkWorld:
    """A topic, and a session that knows the format."""
    monkeypatch.setenv("EOS_BACKFILL__STALL_SECONDS", "1")
    monkeypatch.setenv("EOS_BACKFILL__CHUNK_RECORDS", "100")
    register(spark)
    return world


def options(world: SinkWorld, **others: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": world.servers,
        "topic": world.topic,
        "application": world.name,
        "shards": "3",
        **others,
    }


def run(world: SinkWorld, rows: DataFrame | None = None, **others: str) -> None:
    """Run a query over all batches that there are."""
    writer = (world.rows() if rows is None else rows).writeStream.format("eos_kafka")
    writer = writer.options(**options(world, **others))
    writer = writer.option("checkpointLocation", str(world.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_each_row_of_each_batch_is_written_once(source: SinkWorld) -> None:
    source.feed(0, 50)
    run(source, key="key")
    source.feed(50, 20_000)
    source.feed(20_000, 20_010)
    run(source, key="key")
    assert source.counts() == Counter(range(20_010))


def test_a_job_is_written_once(source: SinkWorld, spark: SparkSession) -> None:
    rows = spark.range(500).selectExpr("id AS n")
    for _ in range(2):
        writer = rows.write.format("eos_kafka").options(**options(source, job="january"))
        writer.mode("append").save()
    assert source.counts() == Counter(range(500))
