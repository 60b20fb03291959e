"""Live workers on a real Spark cluster: executors, nodes and drivers are killed."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from eosframework.embedded.jars import find_spark_java
from tests.conftest import QUICK_JVM, KafkaService
from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.applications.spark_jobs import SparkCluster, are_gone, end_tree, spark_home
from tests.support.processes.programs import REPOSITORY, start_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.exhaustive,
    pytest.mark.timeout(900),
]

OF_SPARK = (
    "spark.driver.memory=600m",
    "spark.executor.memory=600m",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    f"spark.executor.extraJavaOptions={QUICK_JVM}",
)

HOWTO = REPOSITORY / "docs" / "howto" / "workers-on-spark.md"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    made = SparkCluster(tmp_path / "cluster")
    yield made
    made.stop()


@pytest.fixture
def pipeline(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Pipeline]:
    name = unique_name("onspark")
    directory = tmp_path / name
    directory.mkdir()
    made = Pipeline(kafka.bootstrap_servers, name, directory)
    made.apply()
    yield made
    made.stop()


def drive(pipeline: Pipeline, cluster: SparkCluster, *arguments: str) -> WorkerProcess:
    command = ["--on", cluster.master, "--workers", "2", *arguments]
    for option in OF_SPARK:
        command += ["--spark", option]
    return pipeline.start_worker(*command, settings=["worker.session_timeout_seconds=10"])


def workers_of(cluster: SparkCluster) -> list[psutil.Process]:
    """The executors and everything below them."""
    return [child for e in cluster.executors() for child in [e, *e.children(recursive=True)]]


def runs_worker(executor: psutil.Process) -> bool:
    """Whether a worker's process runs below a task of the daemon of an executor."""
    return any(task.children() for daemon in executor.children() for task in daemon.children())


def places(cluster: SparkCluster) -> tuple[int, int]:
    """How many executors run a worker, and how many have run a task and are free."""
    ready = [e for e in cluster.executors() if any(d.children() for d in e.children())]
    running = sum(map(runs_worker, ready))
    return running, len(ready) - running


def test_an_executor_a_node_and_the_driver_are_killed_and_each_record_counts_once(
    pipeline: Pipeline, cluster: SparkCluster
) -> None:
    pipeline.feed(400)
    driver = drive(pipeline, cluster)
    driver.wait_for_event("worker_placed", 2)
    wait_until(lambda: pipeline.committed() == 400, "the first commits")

    took: dict[str, float] = {}

    def all_committed(fault: str, expected: int, began: float) -> None:
        pipeline.feed(400)
        wait_until(lambda: pipeline.committed() == expected, f"commits after {fault}")
        took[fault] = time.monotonic() - began

    began = time.monotonic()
    cluster.executors()[0].kill()
    all_committed("executor", 800, began)
    driver.wait_for_event("worker_placed", 3)

    node = psutil.Process(cluster.add_node("127.0.0.4").pid)
    wait_until(lambda: places(cluster) == (2, 1), "a spare executor with Python's daemon")
    below = next(executor for executor in cluster.executors() if runs_worker(executor))
    lost = below.parent()
    assert lost is not None
    began = time.monotonic()
    end_tree(lost)
    all_committed("node", 1200, began)
    driver.wait_for_event("worker_placed", 4)
    assert node.is_running()
    wait_until(lambda: places(cluster)[0] == 2, "a worker on the executor to spare")

    left = workers_of(cluster)
    assert left
    began = time.monotonic()
    end_tree(psutil.Process(driver.process.pid))
    wait_until(are_gone(left), "the end of all workers after their driver")
    again = drive(pipeline, cluster)
    again.wait_for_event("worker_placed", 2)
    all_committed("driver", 1600, began)

    again.signal(signal.SIGTERM)
    assert again.wait() == 0, again.log[-3000:]
    wait_until(lambda: not workers_of(cluster), "the end of the executors")
    assert pipeline.verify().clean, pipeline.verify()
    print(took)
    assert took["executor"] < 10, took


def test_until_caught_up_is_a_scheduled_job_and_errors_come_back_as_one_message(
    pipeline: Pipeline, cluster: SparkCluster
) -> None:
    pipeline.feed(400)
    done = drive(pipeline, cluster, "--until-caught-up")
    assert done.wait(600) == 0, done.log[-3000:]
    assert pipeline.verify().clean
    copied = drive(pipeline, cluster, "--spark", "spark.speculation=true")
    assert copied.wait() == 2
    assert "--spark spark.speculation=true cannot be used for workers" in copied.log
    assert "Traceback" not in copied.log


def test_spark_submit_starts_workers_and_cannot_let_spark_copy_them(
    pipeline: Pipeline, cluster: SparkCluster, tmp_path: Path
) -> None:
    """The program is that of the how-to."""
    pipeline.feed(400)
    [program] = re.findall(r"```python\n# eos.py\n(.*?)```", HOWTO.read_text(), re.DOTALL)
    (tmp_path / "eos.py").write_text(program)
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", cluster.master]
    for option in (*OF_SPARK, "spark.speculation=true"):
        command += ["--conf", option]
    command += [str(tmp_path / "eos.py"), "run-worker", str(pipeline.topology_file)]
    command += ["--on", "spark-submit", "--workers", "2", "--until-caught-up"]
    command += ["--set", f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"]
    log = tmp_path / "submitted.log"
    process = start_command(
        command,
        out=log,
        environment={
            "JAVA_HOME": str(find_spark_java().parent.parent),
            "SPARK_HOME": str(spark_home()),
            "PYSPARK_PYTHON": sys.executable,
        },
    )
    assert process.wait(600) == 0, log.read_text()[-3000:]
    assert log.read_text().count("worker_placed") == 2, "neither was copied"
    assert pipeline.verify().clean
