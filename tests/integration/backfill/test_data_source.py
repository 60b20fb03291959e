"""`format("eos_kafka")` on real Spark and Kafka: each record once."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from tests.support.applications.pipeline import wait_until
from tests.support.applications.spark_sinks import SinkWorld

pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from eosframework.spark import register
from eosframework.spark.data_source.driver_server import DriverServer, close_server
from eosframework.spark.sinks import sink_entry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def source(
    world: SinkWorld, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SinkWorld]:
    """A topic, and a session that knows the format."""
    monkeypatch.setenv("EOS_BACKFILL__COMMIT_INTERVAL_SECONDS", "0.3")
    monkeypatch.setenv("EOS_BACKFILL__STALL_SECONDS", "1")
    monkeypatch.setenv("EOS_BACKFILL__CHUNK_RECORDS", "100")
    register(spark)
    yield world
    close_server()


def options(world: SinkWorld, **others: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": world.servers,
        "topic": world.topic,
        "application": world.name,
        "shards": "3",
        "directory": str(world.source.parent / "stages"),
        **others,
    }


def start(
    world: SinkWorld, rows: DataFrame | None = None, checkpoint: Path | None = None, **others: str
) -> StreamingQuery:
    writer = (world.rows() if rows is None else rows).writeStream.format("eos_kafka")
    writer = writer.options(**options(world, **others))
    return writer.option("checkpointLocation", str(checkpoint or world.checkpoint)).start()


def run(world: SinkWorld, rows: DataFrame | None = None, **others: str) -> None:
    """Run a query over all batches that there are."""
    query = start(world, rows, None, **others)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def save(world: SinkWorld, rows: DataFrame, job: str, **others: str) -> None:
    writer = rows.write.format("eos_kafka").options(**options(world, job=job, **others))
    writer.mode("append").save()


def stored(world: SinkWorld) -> list[Path]:
    """The files of rows and stages that are left."""
    roots = world.checkpoint, world.source.parent / "stages"
    found = [path for root in roots for path in (root / "eosframework-stages").rglob("*")]
    return [path for path in found if path.is_file()]


def test_each_row_of_each_batch_is_written_once(
    source: SinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_entry, "FEW_ROWS", 100)
    source.feed(0, 50)
    run(source, key="key")
    source.feed(50, 500)
    source.feed(500, 510)
    run(source, key="key")
    source.feed(510, 520)
    run(source, source.rows().where("n < 0"), key="key")  # a batch without rows
    assert source.counts() == Counter(range(510))
    staged = source.shards(sink_entry.name_of(source.topic)).values()
    assert max(one.sequence for one in staged) == 3, "the large batch and the one after it"
    assert stored(source) == []


def test_a_second_write_of_a_job_is_skipped_and_said(
    source: SinkWorld, spark: SparkSession
) -> None:
    rows = spark.range(500).selectExpr("id AS n")
    save(source, rows, "january")
    with capture_logs() as logs:
        save(source, rows, "january")
        save(source, spark.range(500, 510).selectExpr("id AS n"), "february")
    assert source.counts() == Counter(range(510))
    skipped = [log for log in logs if log["event"] == "job_skipped"]
    assert [(log["job"], log["log_level"]) for log in skipped] == [("january", "warning")]


@pytest.fixture
def killed_committer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[int]]:
    """Kill the process of Spark that commits batch 1, once: before or after the sink's commit."""
    peer = threading.local()
    killed: list[int] = []
    serve, commit = DriverServer._serve, DriverServer._commit

    def seen(self: DriverServer, connection: Connection) -> None:
        with socket.socket(fileno=os.dup(connection.fileno())) as one:
            size = struct.calcsize("3i")
            credentials = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        peer.pid = struct.unpack("3i", credentials)[0]
        serve(self, connection)

    def armed(moment: str) -> list[int]:
        def kill(request: dict[str, Any], now: str) -> None:
            if moment == now and request["batch"] == 1 and not killed:
                os.kill(peer.pid, signal.SIGKILL)
                killed.append(peer.pid)

        def killing(self: DriverServer, request: dict[str, Any]) -> None:
            kill(request, "before")
            commit(self, request)
            kill(request, "after")

        monkeypatch.setattr(DriverServer, "_serve", seen)
        monkeypatch.setattr(DriverServer, "_commit", killing)
        return killed

    return armed


@pytest.mark.exhaustive
def test_a_committer_killed_before_the_sink_writes_leaves_the_batch_to_it(
    source: SinkWorld, killed_committer: Callable[[str], list[int]]
) -> None:
    killed = killed_committer("before")
    source.feed(0, 300)
    source.feed(300, 600)
    with pytest.raises(StreamingQueryException):
        run(source, key="key")
    assert len(killed) == 1
    run(source, key="key")  # at once: the sink may write the batch still
    assert source.counts() == Counter(range(600))
    assert stored(source) == []


def test_a_committer_killed_between_both_commits_doubles_nothing(
    source: SinkWorld, killed_committer: Callable[[str], list[int]]
) -> None:
    killed = killed_committer("after")
    source.feed(0, 300)
    source.feed(300, 600)
    with pytest.raises(StreamingQueryException):
        run(source, key="key")
    assert len(killed) == 1
    assert source.counts() == Counter(range(600)), "Kafka has the batch"
    assert {path.name for path in (source.checkpoint / "commits").glob("[0-9]*")} == {"0"}

    source.feed(600, 700)
    with capture_logs() as logs:
        run(source, key="key")
    assert source.counts() == Counter(range(700))
    assert "batch_skipped" in [log["event"] for log in logs]


@pytest.mark.exhaustive
def test_a_repeated_task_leaves_one_file_that_counts(source: SinkWorld, tmp_path: Path) -> None:
    from pyspark.sql.functions import udf

    marker = str(tmp_path / "failed")

    def failing_once(n: Any) -> Any:
        if n == 25_000 and not os.path.exists(marker):  # rows before it are in the file
            Path(marker).touch()
            raise ValueError("once")
        return n

    source.feed(0, 30_000)
    once = udf(failing_once, "bigint", useArrow=False)
    run(source, source.rows().withColumn("n", once("n")), key="key")
    assert os.path.exists(marker)
    assert source.counts() == Counter(range(30_000))
    assert stored(source) == []


def test_a_second_query_is_refused_before_it_fences_the_first(
    source: SinkWorld, tmp_path: Path
) -> None:
    source.feed(0, 20)
    first = start(source, key="key")
    try:
        first.processAllAvailable()
        second = start(source, key="key", checkpoint=tmp_path / "another")
        with pytest.raises(StreamingQueryException, match="is used by the active query"):
            second.awaitTermination()
        # As another driver would: it knows nothing of this one's queries.
        other = source.sink(name=source.topic.replace(".", "_"))
        source.checkpoint = tmp_path / "third"
        with pytest.raises(StreamingQueryException, match="two queries use the sink"):
            source.run(other)
        source.feed(20, 40)
        first.processAllAvailable()
    finally:
        first.stop()
    assert source.counts() == Counter(range(40))


@pytest.mark.exhaustive
def test_rows_that_cannot_be_written_follow_the_option(
    source: SinkWorld, spark: SparkSession
) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, NULL), (3, 'c') AS t(n, key)")
    with pytest.raises(Exception, match="has null in its key column 'key'"):
        save(source, rows, "failing", key="key")
    assert source.counts() == Counter()
    save(source, rows, "skipping", key="key", on_error="skip")
    assert source.counts() == Counter([1, 3])
    dead = f"{source.topic}.dead"
    source.create(dead)
    save(source, rows, "letters", key="key", on_error=f"dead_letter({dead})")
    assert source.counts() == Counter([1, 1, 3, 3])
    assert [json.loads(m.value())["n"] for m in source.read(dead)] == [2]


@pytest.mark.exhaustive
def test_values_are_those_of_kafka_sink(
    source: SinkWorld, spark: SparkSession, spark_events: Path
) -> None:
    rows = spark.sql(
        """
        SELECT 'k' AS key, 1S AS short, 1.50 AS money, date '0001-01-01' AS day,
            timestamp '2024-03-31 01:30:00.123456' AS at, timestamp_ntz '2024-03-31 02:30:00' AS on,
            map('a', array(1, null)) AS nested, interval 2 days AS two, null AS nothing
        """
    )
    save(source, rows, "values", key="key")
    other = f"{source.name}.sink"
    source.create(other)
    sink = source.sink(topic=other)
    assert sink.write(rows, "values", str(source.checkpoint))
    assert not sink.write(rows, "values", str(source.checkpoint)), "it is complete"
    [ours], [theirs] = source.read(source.topic), source.read(other)
    assert ours.value() == theirs.value()
    assert ours.key() == theirs.key() == b"k"

    def logged() -> str:
        return "".join(file.read_text() for file in spark_events.iterdir())

    shown = '"spark.job.description":"kafka_out.values: batch 0 of query job values"'
    wait_until(lambda: shown in logged(), "the description of a job")


def test_rows_for_sparks_own_sink_are_written_as_by_it(
    source: SinkWorld, spark: SparkSession
) -> None:
    rows = spark.sql("SELECT 'k' AS key, '{\"n\": 1}' AS value, 2 AS partition")
    save(source, rows, "theirs")
    [message] = source.read(source.topic)
    assert (message.key(), message.value(), message.partition()) == (b"k", b'{"n": 1}', 2)
    with pytest.raises(AnalysisException, match="columns that this sink does not read: more"):
        save(source, rows.selectExpr("*", "1 AS more"), "both")


@pytest.mark.exhaustive
def test_columns_are_found_as_spark_finds_them(source: SinkWorld, spark: SparkSession) -> None:
    rows = spark.sql("SELECT named_struct('Id', 7, 'at', 1000) AS meta, 'x' AS `a.b`, 'v' AS Body")
    chosen = {"key": "META.id", "value": "body", "timestamp": "meta.at"}
    save(source, rows, "nested-1", **chosen)
    [message] = source.read(source.topic)
    assert (message.key(), message.value(), message.timestamp()[1]) == (b"7", b"v", 1000)
    save(source, rows, "dotted-1", value="a.b", name="a-b")
    assert Counter(m.value() for m in source.read(source.topic)) == {b"v": 1, b"x": 1}
    with pytest.raises(AnalysisException, match="no column 'meta\\.no'"):
        save(source, rows, "missing", key="meta.no")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"topics": "x"}, "has no option 'topics'; did you mean 'topic'"),
        pytest.param(
            {"serde": "avro"},
            "has no option 'serde', which encodes values in Python",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param({"path": "x"}, "takes no path", marks=pytest.mark.exhaustive),
        pytest.param({"job": None}, "needs option\\('job', NAME\\)", marks=pytest.mark.exhaustive),
        pytest.param(
            {"topic": None}, "has neither option\\('topic', …\\)", marks=pytest.mark.exhaustive
        ),
        pytest.param({"shards": "many"}, "got shards='many'", marks=pytest.mark.exhaustive),
        ({"key": "kye"}, "no column 'kye'; expected one of: n, key"),
        pytest.param({"on_error": "ignore"}, "on_error='ignore'", marks=pytest.mark.exhaustive),
        pytest.param(
            {"kafka.acks": "1"}, "transactions need acks=all", marks=pytest.mark.exhaustive
        ),
        pytest.param(
            {"mode": "overwrite"}, "cannot overwrite a topic", marks=pytest.mark.exhaustive
        ),
        ({"directory": "nowhere://x/y"}, "nowhere"),
    ],
)
def test_an_unsuitable_option_is_refused_by_name_without_a_traceback(
    source: SinkWorld, spark: SparkSession, changed: dict[str, str | None], expected: str
) -> None:
    mode = changed.pop("mode", "append")
    given = {**options(source, job="refused"), **changed}
    rows = spark.sql("SELECT 1 AS n, 'k' AS key")
    writer = rows.write.format("eos_kafka").mode(str(mode))
    with pytest.raises(Exception, match=expected) as refused:
        writer.options(**{k: v for k, v in given.items() if v is not None}).save()
    assert "Traceback" not in str(refused.value).split("JVM stacktrace")[0]


def test_a_streaming_query_needs_a_checkpoint_and_takes_no_job(source: SinkWorld) -> None:
    source.feed(0, 1)
    writer = source.rows().writeStream.format("eos_kafka").options(**options(source))
    with pytest.raises(AnalysisException, match="checkpointLocation must be specified"):
        writer.start()
    with pytest.raises(StreamingQueryException, match="is known by its checkpoint"):
        run(source, job="x")


@pytest.mark.exhaustive
def test_complete_mode_writes_each_result_and_spark_refuses_update(
    source: SinkWorld, spark: SparkSession
) -> None:
    def write(mode: str) -> None:
        counts = source.rows().groupBy("key").count().writeStream.outputMode(mode)
        query = counts.format("eos_kafka").options(**options(source, key="key"))
        query = query.option("checkpointLocation", str(source.checkpoint / mode)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    source.feed(0, 7)
    write("complete")
    source.feed(7, 14)
    write("complete")
    found = Counter(json.loads(m.value())["count"] for m in source.read(source.topic))
    assert found == Counter({1: 7, 2: 7})
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        write("update")


def test_the_format_does_not_read(source: SinkWorld, spark: SparkSession) -> None:
    with pytest.raises((AnalysisException, PythonException), match="writes and does not read"):
        spark.read.format("eos_kafka").options(**options(source)).load()
