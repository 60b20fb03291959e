"""An audit of a sink by its receipts: clean as it was written, and each loss and copy named."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework import dead_letter
from eosframework.config import KafkaSettings
from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt
from eosframework.errors import StartRefused
from eosframework.operations.audit import Verdict
from eosframework.operations.audit.sink_audit import audit_sinks
from tests.support.applications.spark_sinks import SinkWorld
from tests.support.processes.programs import framework_command
from tests.support.servers.topics import configure

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException


def audit(world: SinkWorld) -> Verdict:
    return audit_sinks(world.name, KafkaSettings(bootstrap_servers=world.servers))


def faults(verdict: Verdict) -> dict[str, int]:
    names = ("lost", "duplicated", "reordered", "torn")
    return {name: n for name in names if (n := getattr(verdict, name))}


def header(message: Any) -> bytes | None:
    return dict(message.headers() or ()).get(HEADER_RECEIPT)


def repeat(world: SinkWorld, message: Any) -> None:
    """Write a record again, as a sink without transactions would."""
    producer = Producer({"bootstrap.servers": world.servers})
    producer.produce(
        message.topic(),
        message.value(),
        message.key(),
        message.partition(),
        headers=message.headers(),
    )
    assert producer.flush(60) == 0


@pytest.mark.exhaustive
def test_each_row_of_a_sink_is_judged_by_its_receipt_and_what_is_wrong_is_named(
    world: SinkWorld,
) -> None:
    """1. a batch without receipts, then one with them  2. another one stops in the middle of a
    shard, and is resumed  3. the number of shards changes  4. rows are repeated, and lost"""
    admin = AdminClient({"bootstrap.servers": world.servers})
    world.feed(0, 50)
    world.run(world.sink(shards=2))
    with pytest.raises(StartRefused, match="write no receipts"):
        audit(world)
    world.feed(50, 250)
    world.run(world.sink(shards=2, receipts=True))
    verdict = audit(world)
    assert (faults(verdict), verdict.input, verdict.output) == ({}, 200, 200)
    assert verdict.share == 0.8
    assert f"topic {world.topic}: 50 records without a receipt" in " ".join(verdict.notes)

    world.feed(250, 400)
    rows = world.rows().selectExpr(
        "n", "key", f"'{world.topic}' AS goes_to", "IF(n = 390, repeat('x', 2000000), '') AS pad"
    )
    options: dict[str, Any] = {"topic_column": "goes_to", "shards": 2, "receipts": True}
    with pytest.raises(StreamingQueryException, match="refuses its row"):
        world.run(world.sink(chunk_records=10, **options), rows)
    written = world.counts().total()
    assert 250 < written < 400, "the batch is in the topic in part"
    verdict = audit(world)
    assert (faults(verdict), verdict.input) == ({}, 200)
    assert "is incomplete, so its rows are not judged" in " ".join(verdict.notes)
    configure(admin, world.topic, {"max.message.bytes": "4000000"})
    world.run(world.sink(chunk_records=10, **options), rows)
    world.feed(400, 500)
    world.run(world.sink(receipts=True))
    verdict = audit(world)
    assert (faults(verdict), verdict.input) == ({}, 450)
    assert world.counts() == Counter(range(500))

    receipted = [m for m in world.read(world.topic) if Receipt.parse(header(m))]
    repeat(world, receipted[7])
    verdict = audit(world)
    repeated = Receipt.parse(header(receipted[7]))
    assert repeated is not None
    assert faults(verdict) == {"duplicated": 1}
    assert f"sink.out[{repeated.partition}]@{repeated.offset}" in verdict.details[0].text

    first = min((m for m in receipted if m.partition() == 0), key=lambda m: m.offset())
    removed = TopicPartition(world.topic, 0, first.offset() + 3)
    admin.delete_records([removed])[removed].result(60)
    lost = sum(m.partition() == 0 and m.offset() < removed.offset for m in receipted)
    verdict = audit(world)
    assert verdict.lost == lost >= 3
    command = framework_command(
        "audit", "--sinks", world.name, "--bootstrap-server", world.servers, "--json"
    )
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stderr
    assert json.loads(found.stdout)["lost"] == lost


def test_an_application_without_sinks_is_refused(world: SinkWorld) -> None:
    with pytest.raises(StartRefused, match="has no sinks of Spark in Kafka"):
        audit(world)


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_refused_rows_leave_no_gap_for_an_audit(world: SinkWorld, policy: str) -> None:
    """A staged batch, and one in a transaction of the driver; a refused row has a dead letter with
    a receipt, or no place at all."""
    dead = f"{world.name}.dead"
    world.create(dead)
    on_error: Any = "skip" if policy == "skip" else dead_letter(dead)
    options: dict[str, Any] = {"receipts": True, "on_error": on_error, "partition": "part"}
    rows = world.rows().selectExpr("n", "key", "IF(n % 10 = 0, 7, n % 3) AS part")
    world.feed(0, 200)
    sink = world.sink(**options)
    world.run(sink, rows)
    world.feed(200, 250)
    world.run(sink, rows)
    assert world.staged() == 1
    written = Counter(n for n in range(250) if n % 10)
    assert world.counts() == written
    letters = world.read(dead)
    assert len(letters) == (0 if policy == "skip" else 25)
    verdict = audit(world)
    assert (faults(verdict), verdict.input) == ({}, 225 + len(letters))

    some = letters or world.read(world.topic)
    repeat(world, some[3])
    assert faults(audit(world)) == {"duplicated": 1}
