"""Rows of Structured Streaming and of batch DataFrames go to Kafka once."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from eosframework.errors import EosError, StartRefused
from eosframework.spark.sinks import sink_entry as few_rows
from eosframework.transactions.session.session_group import SessionGroup
from tests.support.applications.spark_sinks import SinkWorld
from tests.support.servers.topics import configure

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException


def test_batches_are_in_the_topic_once_and_a_query_goes_on_behind_them(world: SinkWorld) -> None:
    world.feed(0, 500)
    world.feed(500, 800)
    world.run(world.sink())
    world.feed(800, 900)
    world.run(world.sink())
    assert world.counts() == Counter(range(900))
    assert world.staged() == 1, "of the first batch no size was expected"
    assert not list(world.checkpoint.glob("eosframework-stages/*/*"))


def test_a_batch_that_is_larger_than_expected_is_staged_and_a_small_one_follows(
    world: SinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is not repeatable, and has a state, which knows the rows that come twice.

    Its partitions are merged before they are collected, in every second batch.
    """
    monkeypatch.setattr(few_rows, "FEW_ROWS", 100)
    sizes = [50, 100, 101, 60, 70, 0]
    expected = [1, 1, 3, 4, 4, 4]
    sink, end, merged = world.sink(), 0, False
    rows = world.rows().dropDuplicates(["n"])
    rows = rows.selectExpr("n", "CAST(int(rand() * 1000) AS string) AS key")
    for size, staged in zip(sizes, expected, strict=True):
        world.feed(max(end - 10, 0), end + size)
        end += size
        merged ^= True
        monkeypatch.setattr(few_rows, "FEW_PARTITIONS", 0 if merged else 8)
        world.run(sink, rows)
        assert world.staged() == staged, f"a batch of {size} rows"
        assert world.counts() == Counter(range(end))


@pytest.mark.exhaustive
def test_rows_that_are_too_large_for_the_driver_are_staged(world: SinkWorld) -> None:
    """Few rows of 20 MB, where Spark lets a driver collect 8 (`spark.driver.maxResultSize`)."""
    pad = "array_join(transform(sequence(1, 4000), i -> sha2(concat(n, ' ', i), 512)), '')"
    rows = world.rows().selectExpr("n", "key", f"IF(n < 10, '', {pad}) AS pad")
    world.feed(0, 10)
    world.feed(10, 50)
    world.run(world.sink(), rows)
    assert world.staged() == 2
    assert world.counts() == Counter(range(50))


@pytest.mark.exhaustive
def test_a_small_batch_with_a_record_that_brokers_refuse_is_written_up_to_it(
    world: SinkWorld,
) -> None:
    """The limit of a topic in a column is not known before; executors name the row."""
    rows = world.rows().selectExpr(
        "n", "key", f"'{world.topic}' AS goes_to", "IF(n = 77, repeat('x', 2000000), '') AS pad"
    )
    sink = world.sink(topic_column="goes_to", chunk_records=10)
    world.feed(0, 50)
    world.run(sink, rows)
    world.feed(50, 100)
    with pytest.raises(
        StreamingQueryException, match=r"refuses its row .*resumes from the stage at this row"
    ):
        world.run(sink, rows)
    assert 77 not in world.counts()
    assert world.staged() == 2
    configure(
        AdminClient({"bootstrap.servers": world.servers}),
        world.topic,
        {"max.message.bytes": "4000000"},
    )
    world.run(world.sink(topic_column="goes_to", chunk_records=10), rows)
    world.feed(100, 150)
    world.run(sink, rows)
    assert world.counts() == Counter(range(150))


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("before", marks=pytest.mark.exhaustive),
        "after",
        pytest.param("another owns the sink", marks=pytest.mark.exhaustive),
    ],
)
def test_a_small_batch_needs_no_stage_when_its_driver_ends(
    world: SinkWorld, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Keys are random, so a batch that was written in part could not be completed without one.

    It ends with its rows produced: before or after the commit; or it commits after another driver
    has owned the sink, as one that was suspended would.
    """
    rows = world.rows().selectExpr("n", "CAST(int(rand() * 1000) AS string) AS key")
    world.feed(0, 50)
    world.run(world.sink(), rows)
    world.feed(50, 150)
    commit = SessionGroup[Any, Any].commit

    sink = world.sink()

    def ending(self: SessionGroup[Any, Any], *of: Any) -> None:
        if end == "another owns the sink":
            last = sink._owned[0].last
            assert last is not None
            sink.parts[0].own(last.batch).close()
        if end != "before":
            commit(self, *of)
        raise RuntimeError("the driver ends here")

    with monkeypatch.context() as patched:
        patched.setattr(SessionGroup, "commit", ending)
        expected = "taken over by another" if end.startswith("another") else "the driver ends here"
        with pytest.raises(StreamingQueryException, match=expected):
            world.run(sink, rows)
    assert world.counts() == Counter(range(150 if end == "after" else 50))
    world.run(world.sink(), rows)
    assert world.counts() == Counter(range(150))
    assert world.staged() == 1


@pytest.mark.exhaustive
def test_the_last_batch_offered_again_is_skipped_and_any_other_is_refused(
    world: SinkWorld,
) -> None:
    world.feed(0, 100)
    world.feed(100, 200)
    world.run(world.sink())
    (world.checkpoint / "commits" / "1").unlink()
    (world.checkpoint / "commits" / ".1.crc").unlink()
    running = world.sink()
    world.run(running)
    assert world.counts() == Counter(range(200))

    first, world.checkpoint = world.checkpoint, world.checkpoint.with_name("another")
    refused = failure(world, world.sink())
    assert "is complete, and gets batch 0 of query" in refused
    mark = refused.partition("follows='")[2].partition("'")[0]
    assert mark.endswith("@1")
    world.checkpoint = first
    world.feed(200, 300)
    world.run(running)
    assert world.counts() == Counter(range(300)), "the refused query has not fenced the other one"

    world.checkpoint = world.checkpoint.with_name("another")
    mark = mark.replace("@1", "@2")
    world.run(world.sink(follows=mark))
    assert world.counts() == Counter(2 * list(range(300))), "the user said that these are new rows"


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
        f"makes a record of 9073 bytes; topic {small} takes": (
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
