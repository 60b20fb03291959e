"""Drivers, executors and Python workers of real Spark jobs are killed; each record counts once.

What Spark runs where is not for a test to say. So a task is held at a gate in its middle, and what
is killed is the process that stands there, or what that belongs to.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import KafkaService
from tests.support.applications.pipeline import wait_until
from tests.support.applications.spark_jobs import (
    RECORDS,
    SparkCluster,
    SparkJob,
    are_gone,
    executor_of,
)
from tests.support.faults.gates import ROW

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(2400)]

TAKEN_OVER = "was taken over by another attempt"

STALL_SECONDS = 10.0
SLOW_ROW_SECONDS = 0.04

SPECULATION = [
    "spark.speculation=true",
    "spark.speculation.interval=200ms",
    "spark.speculation.multiplier=0.1",
    "spark.speculation.quantile=0.5",
    "spark.speculation.minTaskRuntime=1s",
    "spark.python.task.killTimeout=600s",
]
"""Copies of slow tasks come early, and Spark does not kill who lost its task: the fence has to."""


@pytest.fixture
def job(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[SparkJob]:
    """A job over a history of more than one chunk for each task."""
    name = unique_name("job")
    made = SparkJob(kafka.bootstrap_servers, name, tmp_path / name)
    made.feed(RECORDS)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master with two workers, for the whole module."""
    made = SparkCluster(tmp_path_factory.mktemp("spark") / "cluster")
    yield made
    made.stop()


@pytest.mark.exhaustive
def test_a_killed_driver_is_replaced_and_its_orphan_changes_nothing(
    job: SparkJob,
) -> None:
    job.gates.arm("rows")
    killed = job.drive()
    orphan = job.hold("rows", killed)
    wait_until(lambda: job.is_in_the_middle("totals"), "a part of a task")
    rest = [process for process in killed.processes() if process.pid != orphan.pid]
    daemon, jvm = orphan.parents()[:2]
    jvm.suspend()  # else it would end the worker, and nothing would be left to do harm
    daemon.kill()
    jvm.kill()
    killed.process.kill()
    killed.ends_with(-signal.SIGKILL)
    wait_until(are_gone(rest), "the end of what a dead driver leaves behind")
    assert job.is_in_the_middle("totals")
    job.gates.arm("totals")
    again = job.drive()
    job.hold("totals", again)
    assert not are_gone([orphan])()
    job.gates.release("rows")
    wait_until(are_gone([orphan]), "the end of the orphan")
    assert job.gates.passed("rows")
    job.gates.release("totals")
    again.ends_with(0)
    assert job.findings() == []


@pytest.mark.exhaustive
def test_a_killed_jvm_ends_the_driver_with_a_message_and_the_next_one_resumes(
    job: SparkJob,
) -> None:
    job.gates.arm("totals")
    driver = job.drive()
    job.hold("totals", driver).parents()[1].kill()
    driver.ends_with(1)
    assert "Spark gave job" in driver.log
    assert "Traceback" not in driver.log
    job.drive().ends_with(0)
    assert not job.gates.passed("totals")
    assert job.findings() == []


@pytest.mark.exhaustive
def test_ctrl_c_leaves_no_process_and_two_drivers_at_once_go_on(job: SparkJob) -> None:
    job.gates.arm("rows")
    stopped = job.drive()
    job.hold("rows", stopped)
    wait_until(lambda: job.is_in_the_middle("totals"), "a part of a task")
    below = stopped.processes()
    stopped.ctrl_c()
    assert stopped.wait() == 130, stopped.log[-6000:]
    assert "interrupted; what its tasks have committed stays" in stopped.log
    assert "Traceback" not in stopped.log
    wait_until(are_gone(below), "the end of all processes")
    assert job.is_in_the_middle("totals")
    job.gates.arm("totals")
    # Tasks of one that is merely slow must not be taken over again and again by the other.
    two = [job.drive(stall_seconds=STALL_SECONDS) for _ in range(2)]
    job.hold("totals", two[0]).kill()
    for driver in two:
        driver.ends_with(0)
    assert not job.gates.passed("totals")
    assert job.findings() == []


@pytest.mark.exhaustive
def test_executors_die_with_their_tasks_and_with_files_that_other_tasks_need(
    job: SparkJob, cluster: SparkCluster
) -> None:
    """Both executors shuffle rows for the totals, and one of them dies while tasks wait for it.

    Who tries the first task again stands still until there are two executors once more; then one
    task of totals on each of them, so that the others have yet to begin.
    """
    job.gates.arm("rows", 2)
    job.gates.arm("totals", 2)
    driver = job.drive(master=cluster.master)
    executor_of(job.hold("rows", driver)).kill()
    job.hold("rows", driver, 1)

    def is_replaced() -> bool:
        return len(job.spark_events("ExecutorAdded")) >= 3

    wait_until(is_replaced, "the executor that replaces the dead one", 600)
    job.gates.release("rows")
    alive = executor_of(job.hold("totals", driver))
    [other] = [executor for executor in cluster.executors() if executor.pid != alive.pid]
    other.kill()
    job.gates.release("totals")
    driver.ends_with(0)
    assert len(job.spark_events("ExecutorRemoved")) >= 2
    again = [e for e in job.spark_events("StageSubmitted") if e["Stage Info"]["Stage Attempt ID"]]
    assert again, "no stage was repeated"
    assert job.findings() == []


@pytest.mark.exhaustive
def test_a_copy_of_a_slow_task_waits_while_that_is_well_and_takes_over_when_it_stands_still(
    job: SparkJob, cluster: SparkCluster
) -> None:
    job.gates.arm("totals")
    job.gates.slow_down("rows", SLOW_ROW_SECONDS)
    cluster.listen()
    driver = job.drive(master=cluster.master, stall_seconds=STALL_SECONDS, spark=SPECULATION)
    wait_until(lambda: "attempt_watches" in cluster.said(), "a copy that waits", 600)
    enough = slow_rows(job) + 1.2 * STALL_SECONDS / SLOW_ROW_SECONDS
    wait_until(lambda: slow_rows(job) > enough, "more rows than a stall takes")
    job.gates.hurry("rows")
    first = job.hold("totals", driver)
    assert TAKEN_OVER not in cluster.said()
    job.gates.slow_down("totals", 0.05)
    wait_until(lambda: bool(job.tasks_of(first.pid, "totals.keyed")), "a word of the attempt")
    [number] = job.tasks_of(first.pid, "totals.keyed")
    first.suspend()

    def somebody_else_has_it() -> bool:
        return number not in job.tasks_of(first.pid, "totals.keyed")

    wait_until(somebody_else_has_it, "a copy that takes over")
    job.gates.release("totals")
    first.resume()
    wait_until(lambda: TAKEN_OVER in cluster.said(), "the end of the first attempt")
    job.gates.hurry("totals")
    driver.ends_with(0)
    starts = job.spark_events("TaskStart")
    copies = [event for event in starts if event["Task Info"]["Speculative"]]
    assert len({event["Stage ID"] for event in copies}) >= 2
    assert job.findings() == []


def slow_rows(job: SparkJob) -> int:
    """How many rows of the slow task are committed."""
    task = job.state().tasks.get(("totals", ROW % 4))
    return 0 if task is None else task.records
