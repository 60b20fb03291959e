"""Rows of Structured Streaming and of batch DataFrames go to Kafka once."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any

import pytest

from eosframework.config import KafkaSettings, Settings
from eosframework.errors import ClusterUnreachable, EosError, StartRefused
from eosframework.kafka.inspect.coordinators import describe_transaction
from eosframework.kafka.inspect.wire import Wire
from eosframework.kafka.worker_clients import producers
from eosframework.spark import stage
from eosframework.spark.kafka import driver as kafka_driver
from eosframework.spark.kafka.shard_clients import ShardClients
from eosframework.spark.kafka.shards import ShardSpec, write_few
from tests.support.applications.spark_sinks import SinkWorld

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException


@pytest.mark.parametrize("writer", ["driver", "driver, rows by Spark", "executors"])
def test_batches_are_in_the_topic_once_and_a_query_goes_on_behind_them(
    world: SinkWorld, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if writer == "executors":
        monkeypatch.setattr(stage, "FEW_BYTES", 0)
    if writer == "driver, rows by Spark":
        monkeypatch.setattr(stage, "FEW_FILES", 0)
    world.feed(0, 500)
    world.feed(500, 800)
    world.run(world.sink())
    world.feed(800, 900)
    world.run(world.sink())
    assert world.counts() == Counter(range(900))
    is_here = {one.attempt.split("/")[1] == str(os.getpid()) for one in world.shards().values()}
    assert is_here == {writer != "executors"}
    assert not list(world.checkpoint.glob("eosframework-stages/*/*"))


def test_shards_are_written_with_the_producers_of_the_batch_before(world: SinkWorld) -> None:
    """1. four batches: the ids are inited for the first one  2. another client inits them between
    two batches, which refuses the producers that are kept  3. each row is there once all the
    same."""
    for first in (0, 100, 200, 300):
        world.feed(first, first + 100)
    sink = world.sink()
    world.run(sink)
    ids = [f"{world.name}:sink.out:{shard}" for shard in range(3)]
    assert [epoch_of(world, one) for one in ids] == [0, 0, 0], "inited once"

    outputs = producers(Settings(kafka=KafkaSettings(bootstrap_servers=world.servers)))
    outputs.close(outputs.open(ids))
    outputs.stop()
    assert [epoch_of(world, one) for one in ids] == [1, 1, 1]
    world.feed(400, 500)
    world.run(sink)
    assert world.counts() == Counter(range(500))


def test_executors_resume_a_small_batch_that_its_driver_could_not_finish(
    world: SinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver loses its brokers when one shard is complete."""
    failed: list[ShardSpec] = []

    def write_one_shard(spec: ShardSpec, clients: ShardClients, table: Any) -> dict[int, int]:
        compute: Any = pytest.importorskip("pyarrow.compute")
        write_few(spec, clients, table.filter(compute.equal(table.column("shard"), 1)))
        failed.append(spec)
        raise ClusterUnreachable("the brokers were unavailable")

    monkeypatch.setattr(kafka_driver, "write_few", write_one_shard)
    world.feed(0, 500)
    world.run(world.sink())
    assert failed
    assert world.counts() == Counter(range(500))
    here = {one.attempt.split("/")[1] == str(os.getpid()) for one in world.shards().values()}
    assert here == {True, False}, "a shard of the driver, and shards of executors"


def epoch_of(world: SinkWorld, transactional_id: str) -> int:
    """The epoch of the last producer that inited an id."""
    with Wire(KafkaSettings(bootstrap_servers=world.servers)) as wire:
        return describe_transaction(wire, transactional_id).producer_epoch


@pytest.mark.exhaustive
def test_the_last_batch_offered_again_is_skipped_and_any_other_is_refused(
    world: SinkWorld,
) -> None:
    world.feed(0, 100)
    world.feed(100, 200)
    world.run(world.sink())
    (world.checkpoint / "commits" / "1").unlink()
    (world.checkpoint / "commits" / ".1.crc").unlink()
    world.run(world.sink())
    assert world.counts() == Counter(range(200))

    world.checkpoint = world.checkpoint.with_name("another")
    refused = failure(world, world.sink())
    assert "is complete, and gets batch 0 of query" in refused
    mark = refused.partition("follows='")[2].partition("'")[0]
    assert mark.endswith("@1")
    assert world.counts() == Counter(range(200))
    world.run(world.sink(follows=mark))
    assert world.counts() == Counter(2 * list(range(200))), "the user said that these are new rows"


@pytest.mark.exhaustive
def test_all_parts_of_a_record_come_from_columns(world: SinkWorld) -> None:
    rows = world.spark.sql(
        "SELECT id AS n, CAST(id AS string) AS key, CAST(id % 3 AS int) AS part, "
        "timestamp_millis(1700000000000 + id) AS at, encode(concat('v', id), 'utf-8') AS data, "
        "array(named_struct('key', 'h', 'value', CAST('x' AS binary))) AS headers, "
        "IF(id % 2 = 0, 'TOPIC', 'OTHER') AS goes_to FROM range(40)".replace(
            "TOPIC", world.topic
        ).replace("OTHER", world.topic + ".odd")
    )
    world.create(world.topic + ".odd")
    sink = world.sink(
        topic_column="goes_to", value="data", headers="headers", timestamp="at", partition="part"
    )
    world.spark.conf.set("spark.sql.adaptive.enabled", "true")  # it must not merge shards
    for _ in range(2):
        sink.write(rows, job="parts", directory=str(world.checkpoint))
    world.spark.conf.set("spark.sql.adaptive.enabled", "false")
    for odd, topic in enumerate((world.topic, world.topic + ".odd")):
        found = {
            (m.key(), m.value(), m.partition(), m.timestamp()[1]): m.headers()
            for m in world.read(topic)
        }
        assert found == {
            (b"%d" % n, b"v%d" % n, n % 3, 1700000000000 + n): [("h", b"x")]
            for n in range(odd, 40, 2)
        }
        assert len(world.read(topic)) == 20


def test_what_cannot_be_written_ends_a_query_or_a_job_with_one_message(world: SinkWorld) -> None:
    """A query of its own for each message would cost seconds; batches pass the same steps."""
    world.feed(0, 50)
    null_keys = world.rows().selectExpr("n", "NULLIF(key, 'k3') AS key")
    assert "has null in its key column 'key'" in failure(world, world.sink(), null_keys)
    plain = world.spark.range(50).selectExpr("id AS n", "concat('k', id % 7) AS key")
    small = f"{world.name}.small"
    world.create(small, {"max.message.bytes": "2000"})
    asked = {
        f"bytes; topic {small} takes": (
            world.sink(topic=small, value="n"),
            plain.selectExpr("key", "repeat('x', int(n) * 100) AS n"),
        ),
        f"makes a record of 9001 bytes; topic {small} takes": (
            world.sink(topic=small, value="n"),
            plain.selectExpr("repeat('x', 9000) AS key", "1 AS n"),
        ),
        "topic 'missing.topic' does not exist": (world.sink(topic="missing.topic"), plain),
        "have no column 'absent'": (world.sink(value="absent"), plain),
        "has part=-1; expected a partition from 0": (
            world.sink(partition="part"),
            plain.selectExpr("*", "-1 AS part"),
        ),
        "column 'n' has type bigint; expected array": (world.sink(headers="n"), plain),
    }
    for expected, (sink, rows) in asked.items():
        with pytest.raises(EosError, match=re.escape(expected)):
            sink.write(rows, job="bad", directory=str(world.checkpoint))
    assert not world.counts()
    world.run(world.sink())
    assert world.counts() == Counter(range(50)), "none of them is in the way of a good query"


def test_an_application_of_live_workers_is_refused(world: SinkWorld) -> None:
    world.record({"topology": {"version": 1}, "application": {"cluster_id": "x"}})
    with pytest.raises(StartRefused, match="choose another application="):
        world.sink().write(world.spark.range(5).selectExpr("id AS n", "id AS key"), job="refused")
    assert not world.counts()


def failure(world: SinkWorld, sink: Any, rows: Any = None) -> str:
    """Run a query that fails, and return the line with its message."""
    with pytest.raises(StreamingQueryException) as failed:
        world.run(sink, rows)
    lines = [
        line for line in str(failed.value).splitlines() if line.startswith("eosframework.errors.")
    ]
    assert len(lines) == 1, str(failed.value)
    return lines[0]
