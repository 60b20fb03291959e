"""Ranges, topics, records and sessions that a backfill cannot use: one clear message each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.application.context import connect
from eosframework.application.journal import KafkaJournal
from eosframework.config import load_settings
from eosframework.embedded.data_directory import free_ports
from eosframework.errors import (
    ClusterUnreachable,
    ConfigurationError,
    PositionLost,
    RunError,
    StartRefused,
)
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.spark.backfill.api import Backfill
from eosframework.spark.backfill.job_start import register, start
from eosframework.spark.job.job_entry import from_entries, settled_job
from eosframework.transactions import failpoints
from tests.conftest import KafkaService
from tests.support.applications.handed_over import JOB, HandedOver
from tests.support.faults.sleepers import Sleeper, claim
from tests.support.processes.programs import Finished
from tests.support.servers.kafka_admin import NewPartitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

REFUSING = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  totals:
    from: numbers
    steps: [{map_values: "MODULE:checked"}]
    to: {topic: NAME.totals, value: json}
"""


FUNCTION = """\
def checked(value):
    if value["n"] == 13:
        raise ValueError("thirteen is not served")
    return value
"""


@pytest.fixture
def orders(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[HandedOver]:
    name = unique_name("bad")
    pipeline = HandedOver(kafka.bootstrap_servers, name, tmp_path / name, partitions=2)
    yield pipeline
    pipeline.stop()


def job_of(orders: HandedOver, *settings: str, **arguments: Any) -> Backfill:
    chosen = [f"kafka.bootstrap_servers={orders.bootstrap_servers}", *settings]
    return Backfill(
        str(orders.topology_file), job=JOB, settings=load_settings(None, chosen), **arguments
    )


def started(orders: HandedOver) -> None:
    """Start the job, and run nothing of it."""
    given = job_of(orders)
    start(connect(given.graph, given.settings), JOB, given.request, lambda _: ())


def journal_of(orders: HandedOver) -> KafkaJournal:
    settings = load_settings(None, [f"kafka.bootstrap_servers={orders.bootstrap_servers}"])
    return KafkaJournal(orders.name, settings.kafka, ClusterAdmin(settings.kafka))


def remove_before(orders: HandedOver, offset: int) -> None:
    """Do as retention does, in partition 0."""
    admin = AdminClient({"bootstrap.servers": orders.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(orders.source, 0, offset)]).values():
        future.result(60)


def command(orders: HandedOver, directory: Path, *arguments: str, **environment: str) -> Finished:
    """Run the job by the command line, with the same modules on its executors."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "eosframework", "backfill", "run", str(orders.topology_file)),
            *("--job", JOB, "--master", "local[2,2]", "--spark", "spark.driver.memory=600m"),
            *arguments,
        ],
        cwd=directory,
        env=os.environ | {"EOS_KAFKA__BOOTSTRAP_SERVERS": orders.bootstrap_servers} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def test_a_worker_that_sleeps_in_its_commit_is_fenced_before_a_job_fills_its_state(
    orders: HandedOver,
) -> None:
    orders.feed(10)
    [part] = [
        part
        for part in orders.graph.sub_topologies
        if orders.source in {source.topic for source in part.sources}
    ]
    settings = load_settings(None, [f"kafka.bootstrap_servers={orders.bootstrap_servers}"])
    id_ = f"{orders.name}:{part.name}:1"
    claim(connect(orders.graph, settings), orders.source, 1, id_, part.name)
    sleeper = Sleeper(orders.bootstrap_servers, id_, f"{orders.name}.totals")
    started(orders)
    assert sleeper.is_fenced()


@pytest.mark.exhaustive
def test_ranges_that_cannot_be_had_are_refused_by_what_is_wrong(
    spark: SparkSession, orders: HandedOver
) -> None:
    orders.feed(200)
    remove_before(orders, 20)
    topic = orders.source
    cases: list[tuple[dict[str, list[str]], str]] = [
        ({"start": ["end"]}, "the range holds no record: .*in.0. 100 to 100"),
        (
            {"start": [f"{topic}[0]=80"], "end": [f"{topic}[0]=70"]},
            r"the range of .*\[0\] is reversed: --from .* is offset 80, and --to .* is offset 70",
        ),
        (
            {"start": [f"{topic}[0]=5"]},
            r"offset 5 was deleted by retention; .* begins at offset 20",
        ),
        ({"end": [f"{topic}[1]=700"]}, r"offset 700 .* is not in the log, which holds 0 to 100"),
        ({"start": ["elsewhere=beginning"]}, "'elsewhere' is not a topic that the job reads"),
        ({"start": [f"{topic}[7]=0"]}, "has 2 partitions, counted from 0"),
        ({"end": ["yesterday"]}, "is not a bound; expected beginning, end, a time"),
    ]
    for arguments, message in cases:
        with pytest.raises(ConfigurationError, match=message):
            job_of(orders, **arguments).run(spark)
    assert settled_job(journal_of(orders), JOB) is None
    job_of(orders).run(spark)
    assert orders.totals() == 180


def test_records_that_retention_removes_after_the_start_end_the_job_by_name(
    spark: SparkSession, orders: HandedOver
) -> None:
    orders.feed(200)
    started(orders)
    remove_before(orders, 30)
    with pytest.raises(PositionLost, match=r"in\[0\]: the next offset .* is 0, .* begins at 30"):
        job_of(orders).run(spark)


def test_a_topic_with_more_partitions_than_at_the_start_is_refused(
    spark: SparkSession, orders: HandedOver
) -> None:
    orders.feed(100)
    job_of(orders, end=[f"{orders.source}[0]=20"]).run(spark)
    admin = AdminClient({"bootstrap.servers": orders.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(orders.source, 3)]).values():
        future.result(60)
    with pytest.raises(StartRefused, match="3 partitions"):
        job_of(orders).run(spark)


def test_a_range_has_fewer_records_than_offsets_and_ends(
    spark: SparkSession, orders: HandedOver
) -> None:
    orders.feed(100)
    producer = Producer(
        {"bootstrap.servers": orders.bootstrap_servers, "transactional.id": orders.name}
    )
    producer.init_transactions(60)
    for _ in range(3):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(orders.source, b'{"n": 7}', b"7", number % 2)
        producer.flush(60)
        producer.abort_transaction(60)
    state = job_of(orders).run(spark)
    assert [one.end for one in state.job.ranges[orders.source]] == [68, 68]
    assert all(task.complete for task in state.tasks.values())
    assert orders.totals() == 100


def test_brokers_that_are_away_are_named(spark: SparkSession, orders: HandedOver) -> None:
    [port] = free_ports(1)
    away = f"kafka.bootstrap_servers=127.0.0.1:{port}"
    short = ["kafka.request_timeout_seconds=3", "kafka.start_timeout_seconds=0"]
    with pytest.raises(ClusterUnreachable, match=f"127.0.0.1:{port}"):
        job_of(orders, away, *short).run(spark)


def test_of_two_drivers_that_start_a_job_at_once_one_fixes_its_range(orders: HandedOver) -> None:
    orders.feed(100)
    settings = load_settings(None, [f"kafka.bootstrap_servers={orders.bootstrap_servers}"])
    given = from_entries(JOB, orders.job_entries(ClusterAdmin(settings.kafka)))
    assert given is not None
    first, second = (given.job.model_copy(update={"created_at": at}) for at in (1, 2))

    def meanwhile(point: str) -> None:
        failpoints.disarm(point)
        assert register(second, journal_of(orders), settings).job == second

    failpoints.arm("transaction.before_commit", meanwhile)
    assert register(first, journal_of(orders), settings).job == second
    found = settled_job(journal_of(orders), JOB)
    assert found is not None
    assert found.job == second


def test_a_record_that_fails_is_named_and_a_mended_function_starts_over(
    orders: HandedOver, tmp_path: Path
) -> None:
    module = orders.directory / f"steps_{orders.name.rpartition('.')[2]}.py"
    module.write_text(FUNCTION)
    text = REFUSING.replace("NAME", orders.name).replace("MODULE", module.stem)
    orders.topology_file.write_text(text)
    orders.feed(40)
    done = command(orders, tmp_path)
    assert done.exit_code == 1
    assert f"{orders.source}[1]@6 failed in step" in done.error
    assert "ValueError: thirteen is not served" in done.error
    assert orders.totals() in (6, 26)  # the other task may have come to its end, or not
    module.write_text(FUNCTION.replace("== 13", "== -1"))
    message = f"module {module.stem} changed since.* under another --job"
    with pytest.raises(ConfigurationError, match=message):
        started(orders)


@pytest.mark.exhaustive
def test_what_the_session_lacks_is_said_before_anything_is_started(
    orders: HandedOver, tmp_path: Path
) -> None:
    orders.feed(10)
    jar = tmp_path / "spark-sql-kafka-0-10_2.13-0.0.0.jar"
    done = command(orders, tmp_path, "--spark", f"spark.jars={jar}")
    assert done.exit_code == 2
    assert "this Spark session cannot read Kafka" in done.error
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    done = command(orders, tmp_path, PYSPARK_PYTHON=str(bare / "bin" / "python"))
    assert done.exit_code == 2
    assert "cannot run eosframework" in done.error
    assert "PYSPARK_PYTHON" in done.error
    assert settled_job(journal_of(orders), JOB) is None


def test_a_start_that_brokers_refuse_is_not_repeated(orders: HandedOver) -> None:
    orders.feed(10)
    chosen = [f"kafka.bootstrap_servers={orders.bootstrap_servers}"]
    settings = load_settings(None, [*chosen, "worker.transaction_timeout_seconds=1000"])
    given = from_entries(JOB, orders.job_entries(ClusterAdmin(settings.kafka)))
    assert given is not None
    pauses: list[float] = []
    with pytest.raises(RunError, match=r"INVALID_TRANSACTION_TIMEOUT.*To fix it: lower worker"):
        register(given.job, journal_of(orders), settings, pause=pauses.append)
    assert pauses == []
