"""Whole backfills by the command line, on Spark processes that may be killed one by one.

A job's driver, its executors and their Python workers are real processes. Which of them runs the
task that a test wants to hit, the gates tell (tests/support/faults/gates.py).
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from eosframework.application.journal import KafkaJournal
from eosframework.config import KafkaSettings
from eosframework.embedded.data_directory import free_ports
from eosframework.embedded.jars import find_spark_java
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.spark.job.job_entry import JobState, decided_job
from tests.conftest import QUICK_JVM
from tests.support.applications.handed_over import JOB, HandedOver
from tests.support.applications.pipeline import wait_until
from tests.support.faults.gates import Gates
from tests.support.processes.programs import (
    RunningProgram,
    framework_command,
    in_the_foreground,
    start_command,
)

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  totals:
    from: numbers
    steps:
      - map_values: "tests.support.faults.gates:pass_rows"
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count: {}
      - map_values: "tests.support.faults.gates:pass_total"
    to: {topic: NAME.totals, value: json}
"""

RECORDS = 12_000

SETTINGS = [
    "backfill.commit_interval_seconds=0.5",
    "backfill.chunk_records=1000",
    "worker.transaction_timeout_seconds=300",
]
"""A task commits in its middle, and whoever is held at a gate does not end by itself."""

EXECUTOR = "CoarseGrainedExecutorBackend"


class Driver(RunningProgram):
    """A real `eosframework backfill run` in a process of its own."""

    def wait(self, seconds: float = 1200) -> int:
        return super().wait(seconds)

    def ends_with(self, code: int) -> None:
        assert self.wait() == code, self.log[-6000:]

    def ctrl_c(self) -> None:
        """Send the signal of a terminal: to all without a process group of their own."""
        self.signal_group(signal.SIGINT)

    def processes(self) -> list[psutil.Process]:
        """Return all processes that it started and that run."""
        return psutil.Process(self.process.pid).children(recursive=True)


class SparkJob(HandedOver):
    """The application with gates, and the drivers of its job."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path) -> None:
        super().__init__(bootstrap_servers, name, directory, partitions=4, topology=TOPOLOGY)
        self.gates = Gates(directory / "gates")
        self.events = directory / "spark-events"
        self.events.mkdir()
        self._drivers: list[Driver] = []

    def expected_windows(self) -> list[tuple[str, int, int]]:
        """None: every stage costs seconds, and windows are attempts as others are."""
        return []

    def drive(
        self,
        *arguments: str,
        master: str = "local[2,4]",
        stall_seconds: float = 2,
        spark: Sequence[str] = (),
    ) -> Driver:
        """Start the job, or let it go on."""
        log_file = self.directory / f"driver{len(self._drivers)}.log"
        command = framework_command("backfill", "run")
        command += [str(self.topology_file), "--job", JOB, "--master", master, *arguments]
        for setting in (*SETTINGS, f"backfill.stall_seconds={stall_seconds}"):
            command += ["--set", setting]
        for setting in (*self._of_spark(), *spark):
            command += ["--spark", setting]
        own = {
            "EOS_KAFKA__BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "EOS_TEST_GATES": str(self.gates.directory),
        }
        process = start_command(command, out=log_file, environment=own, prepare=in_the_foreground)
        driver = Driver(process, log_file)
        self._drivers.append(driver)
        return driver

    def _of_spark(self) -> list[str]:
        return [
            "spark.driver.memory=600m",
            "spark.driver.host=127.0.0.1",
            "spark.driver.bindAddress=127.0.0.1",
            f"spark.executor.extraJavaOptions={QUICK_JVM}",
            f"spark.executorEnv.EOS_TEST_GATES={self.gates.directory}",
            "spark.eventLog.enabled=true",
            "spark.eventLog.compress=false",
            "spark.eventLog.rolling.enabled=false",
            f"spark.eventLog.dir={self.events.as_uri()}",
        ]

    def hold(self, gate: str, driver: Driver, place: int = 0) -> psutil.Process:
        """Wait until a process stands at a gate, in the middle of its task, and return it.

        Args:
            gate: that is armed.
            driver: of the job.
            place: 0 is who came first.
        """

        def stands() -> bool:
            assert driver.process.poll() is None, driver.log[-6000:]
            return self.gates.held(gate, place) is not None

        wait_until(stands, f"somebody at the gate {gate}", 600)
        number = self.gates.held(gate, place)
        assert number is not None
        return psutil.Process(number)

    def state(self) -> JobState:
        """The job as far as it is decided."""
        settings = KafkaSettings(bootstrap_servers=self.bootstrap_servers)
        found = decided_job(KafkaJournal(self.name, settings, ClusterAdmin(settings)), JOB)
        assert found is not None, "the job is not registered"
        return found

    def is_in_the_middle(self, sub_topology: str) -> bool:
        """Whether some task has committed a part of its rows, and not all of them."""
        tasks = [t for (name, _), t in self.state().tasks.items() if name == sub_topology]
        return any(task.records > 0 and not task.complete for task in tasks)

    def tasks_of(self, process: int, sub_topology: str) -> list[int]:
        """The tasks whose last progress is of a process."""
        return [
            number
            for (name, number), task in self.state().tasks.items()
            if name == sub_topology and f"/{process}/" in task.attempt
        ]

    def spark_events(self, name: str) -> list[dict[str, Any]]:
        """What Spark says of its tasks and executors, over all drivers.

        Of one that runs it may be late, but not with executors that come or go.
        """
        found: list[dict[str, Any]] = []
        for file in self.events.iterdir():
            whole, _, _ = file.read_text().rpartition("\n")
            for line in whole.splitlines():
                event = json.loads(line)
                if event["Event"] == f"SparkListener{name}":
                    found.append(event)
        return found

    def stop(self) -> None:
        """End everything that was started and still runs."""
        for gate in ("rows", "totals"):
            self.gates.release(gate)
        for driver in self._drivers:
            if driver.process.poll() is None:
                end_tree(psutil.Process(driver.process.pid))
                driver.process.wait()
        super().stop()


class SparkCluster:
    """A master with two workers of one core, on addresses of this machine that differ.

    On equal ones Spark would not start a copy of a slow task.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._told: frozenset[Path] = frozenset()
        directory.mkdir()
        [port] = free_ports(1)
        self.master = f"spark://127.0.0.1:{port}"
        self._processes = [self._started("master.Master", "127.0.0.1", "--port", str(port))]
        for host in ("127.0.0.2", "127.0.0.3"):
            self.add_node(host)
        wait_until(lambda: self._registered() == 2, "two workers of Spark")

    def add_node(self, host: str) -> psutil.Process:
        """Start a worker of Spark with one core; it registers by itself."""
        work = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.directory / host))
        started = self._started("worker.Worker", host, *work, self.master)
        self._processes.append(started)
        return psutil.Process(started.pid)

    def executors(self) -> list[psutil.Process]:
        """Those that run."""
        below = [p for one in self._processes for p in psutil.Process(one.pid).children()]
        return [process for process in below if _is(process, EXECUTOR)]

    def listen(self) -> None:
        """Let `said` tell of the executors only that start from now on."""
        self._told = frozenset(self._logs())

    def said(self) -> str:
        """Everything that executors and their Python workers wrote."""
        new = sorted(self._logs() - self._told)
        return "\n".join(log.read_text(errors="replace") for log in new)

    def stop(self) -> None:
        for process in self._processes:
            end_tree(psutil.Process(process.pid))
            process.wait()

    def _logs(self) -> set[Path]:
        return set(self.directory.glob("127.0.0.*/app-*/*/stderr"))

    def _registered(self) -> int:
        log = (self.directory / "master.Master-127.0.0.1.log").read_text(errors="replace")
        return len(re.findall("Registering worker", log))

    def _started(self, name: str, host: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = spark_home()
        return start_command(
            [
                str(home / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{name}",
                *("--host", host, "--webui-port", "0", *arguments),
            ],
            out=self.directory / f"{name}-{host}.log",
            environment={
                "JAVA_HOME": str(find_spark_java().parent.parent),
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": host,
                "SPARK_DAEMON_MEMORY": "200m",
            },
            directory=self.directory,
        )


def spark_home() -> Path:
    """Return the Spark that comes with pyspark."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def executor_of(process: psutil.Process) -> psutil.Process:
    """Return the executor's JVM whose Python worker a process is."""
    return next(parent for parent in process.parents() if _is(parent, EXECUTOR))


def end_tree(process: psutil.Process) -> None:
    """Kill a process and everything below it, also what stands still."""
    for one in [process, *process.children(recursive=True)]:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue


def are_gone(processes: Sequence[psutil.Process]) -> Callable[[], bool]:
    """Return what tells whether all of them have ended."""
    return lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def _is(process: psutil.Process, word: str) -> bool:
    """Whether a process has a word in its command, and did not end meanwhile."""
    with suppress(psutil.NoSuchProcess):
        return any(word in one for one in process.cmdline())
    return False
