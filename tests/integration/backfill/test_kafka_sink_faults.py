"""Processes of a sink are killed and suspended; beside it, Spark's own sink doubles records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from eosframework.embedded import KafkaCluster, start_kafka
from tests.conftest import SMALL_BROKER, KafkaService
from tests.support.applications.pipeline import wait_until
from tests.support.applications.spark_jobs import end_tree
from tests.support.applications.spark_sinks import SinkWorld
from tests.support.processes.programs import REPOSITORY
from tests.support.servers.topics import configure

pytest.importorskip("pyspark")
from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.exhaustive

ROWS = 6000
AWAY_SECONDS = 15.0
"""Longer than a request, and than the batch takes."""


def killed_once(directory: Path, rows: DataFrame) -> DataFrame:
    """Return rows that pass a Python worker that is killed in their middle, once."""
    from pyspark.sql.functions import udf

    marker = str(directory / "killed")

    def passed(n: int) -> str:
        if n == ROWS // 2 and not os.path.exists(marker):
            Path(marker).touch()
            time.sleep(2)  # what Spark's sink has produced reaches the broker
            os.kill(os.getpid(), signal.SIGKILL)
        return str(n) * 120  # so that rows leave Python's buffer before the kill

    return rows.withColumn("pad", udf(passed, "string", useArrow=False)("n"))


def test_killed_python_workers_double_nothing_and_with_sparks_own_sink_they_do(
    world: SinkWorld, tmp_path: Path
) -> None:
    world.feed(0, ROWS)
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    own.mkdir()
    theirs.mkdir()
    killed: list[int] = []
    done = threading.Event()

    def kill() -> None:
        while not done.wait(0.02) and not killed:
            process = world.writing()
            if process is None or not psutil.pid_exists(process):
                continue
            # It is suspended, so it stays where it is if it was in the middle of its shard.
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
                is_in_the_middle = world.writing() == process
                os.kill(process, signal.SIGKILL if is_in_the_middle else signal.SIGCONT)
                killed.extend([process] * is_in_the_middle)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        world.run(world.sink(shards=2, chunk_records=20), killed_once(own, world.rows()))
    finally:
        done.set()
        killer.join()
    assert (own / "killed").exists(), "a worker was killed while rows were computed"
    assert killed, "a worker was killed in the middle of a shard"
    assert any("/1/" in one.attempt for one in world.shards().values()), "another attempt"
    assert world.counts() == Counter(range(ROWS))

    twin = f"{world.topic}.twin"
    world.create(twin)
    query = (
        killed_once(theirs, world.rows())
        .selectExpr("key", "to_json(struct(*)) AS value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", world.servers)
        .option("topic", twin)
        .option("checkpointLocation", str(tmp_path / "twin"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert (theirs / "killed").exists()
    counts = Counter(json.loads(m.value())["n"] for m in world.read(twin))
    assert set(counts) == set(range(ROWS))
    assert sum(counts.values()) > ROWS, "the twin doubles records"


def test_killed_and_suspended_drivers_are_replaced_and_have_no_effect(
    world: SinkWorld, kafka: KafkaService, tmp_path: Path
) -> None:
    """1. a driver is killed in the middle of a shard  2. its successor is suspended there, with its
    JVM and its attempts  3. a third one completes all batches  4. the second one continues."""
    world.feed(0, ROWS)
    world.feed(ROWS, ROWS + 100)
    log = tmp_path / "driver.log"
    command = [sys.executable, "-m", "tests.support.applications.sink_program"]
    command += [kafka.bootstrap_servers, world.name, str(tmp_path)]

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=tmp_path,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def tree(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
        process = psutil.Process(driver.pid)
        return [process, *process.children(recursive=True)]

    def suspended_in_a_shard(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
        found: list[psutil.Process] = []

        def happened() -> bool:
            assert driver.poll() is None, log.read_text()[-4000:]
            if world.writing() not in {one.pid for one in tree(driver)}:
                return False
            found.extend(tree(driver))
            for one in found:
                with suppress(psutil.NoSuchProcess):
                    one.suspend()
            if world.writing() in {one.pid for one in found}:
                return True
            for one in found:
                with suppress(psutil.NoSuchProcess):
                    one.resume()
            found.clear()
            return False

        wait_until(happened, "an attempt in the middle of its shard", 400)
        return found

    first = start()
    end_tree(suspended_in_a_shard(first)[0])
    first.wait()
    second = start()
    try:
        sleepers = suspended_in_a_shard(second)
        third = start()
        assert third.wait(600) == 0, log.read_text()[-4000:]
        assert log.read_text().count("batch_staged") == 1, "all read the stage of the first batch"
        for one in sleepers:
            one.resume()
        assert second.wait(400) != 0
        assert "InstanceFenced" in log.read_text()
    finally:
        if second.poll() is None:
            end_tree(psutil.Process(second.pid))
            second.wait()
    assert world.counts() == Counter(range(ROWS + 100))


@pytest.mark.parametrize("stage", [True, False])
def test_a_plan_that_is_not_repeatable_needs_its_stage(world: SinkWorld, *, stage: bool) -> None:
    """The keys are random, so each computation puts rows into other shards.

    1. a row is too large for the topic, so its shard stops, and the others commit
    2. the topic is changed, and the query starts again: without a stage it computes other keys
    """
    world.feed(0, 600)
    rows = world.rows().selectExpr(
        "n",
        "CAST(int(rand() * 1000) AS string) AS key",
        f"'{world.topic}' AS goes_to",
        "IF(n = 77, repeat('x', 2000000), '') AS pad",
    )
    sink = world.sink(topic_column="goes_to", stage=stage)
    with pytest.raises(
        StreamingQueryException, match=r"refuses its row .*resumes from the stage at this row"
    ):
        world.run(sink, rows)
    before = world.counts()
    assert before
    assert 77 not in before
    admin = AdminClient({"bootstrap.servers": world.servers})
    configure(admin, world.topic, {"max.message.bytes": "4000000"})
    fresh = rows.drop("key").selectExpr(
        "n", "CAST(int(rand() * 1000) AS string) AS key", "goes_to", "pad"
    )
    sink = world.sink(topic_column="goes_to", stage=stage)
    if stage:
        world.run(sink, fresh)
        assert world.counts() == Counter(range(600))
        return
    with pytest.raises(StreamingQueryException, match="the plan is not repeatable"):
        world.run(sink, fresh)
    assert world.counts() != Counter(range(600)), "rows are doubled, or missing for good"


def test_a_batch_outlasts_its_brokers_and_a_query_without_brokers_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    """1. the brokers are killed in the middle of a shard, and start again later: the batch waits
    2. a query starts without brokers: it ends with a message  3. with them it resumes"""
    place = tmp_path / "kafka"
    with start_kafka(place, properties=SMALL_BROKER) as cluster:
        world = SinkWorld(spark, cluster.bootstrap_servers, "unavailable", tmp_path)
        world.feed(0, ROWS)
        again: list[KafkaCluster] = []

        def restart() -> None:
            wait_until(lambda: world.writing() is not None, "an attempt in its shard", 400)
            cluster.kill()
            time.sleep(AWAY_SECONDS)
            again.append(start_kafka(place))

        restarting = threading.Thread(target=restart)
        restarting.start()
        world.run(world.sink(shards=2, chunk_records=20))
        restarting.join()
        assert again, "the brokers were killed while an attempt was in its shard"
        world.stop()
        with again[0]:
            assert world.counts() == Counter(range(ROWS))
            again[0].kill()
            world.feed(ROWS, ROWS + 10)
            with pytest.raises(StreamingQueryException, match=r"no broker at .* answered within"):
                world.run(world.sink(shards=2))
        with start_kafka(place):
            world.run(world.sink(shards=2))
            world.stop()
            assert world.counts() == Counter(range(ROWS + 10))
