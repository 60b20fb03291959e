"""A Spark cluster of a demo: a master and two workers on this machine, with an executor each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from eosframework.demo.services import Program
from eosframework.demo.stage import Stage
from eosframework.embedded.java import find_spark_java
from eosframework.embedded.ports import free_ports

HOSTS = ("127.0.0.2", "127.0.0.3")
"""Addresses of this machine, so that Spark takes the workers for two machines."""

START_SECONDS = 120.0
LOOK_SECONDS = 0.2


class SparkCluster:
    """A standalone cluster; its processes end with this one in any case.

    Args:
        stage: of the demo.
        directory: of logs and files.

    Attributes:
        master: address for drivers.
        environment: variables for a driver.
    """

    def __init__(self, stage: Stage, directory: Path) -> None:
        directory.mkdir()
        found = find_spec("pyspark")
        assert found is not None, "its presence was checked"
        assert found.origin is not None, "pyspark is a package with files"
        self._home = Path(found.origin).parent
        self._stage = stage
        self._directory = directory
        [port] = free_ports(1)
        self.master = f"spark://127.0.0.1:{port}"
        self.environment: Mapping[str, str] = {
            "JAVA_HOME": str(find_spark_java().parent.parent),
            "SPARK_DAEMON_MEMORY": "200m",
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "TMPDIR": str(directory),
        }
        self._start("master.Master", "127.0.0.1", "--port", str(port))
        for host in HOSTS:
            place = ("--work-dir", str(directory / host))
            self._start(
                "worker.Worker", host, "--cores", "1", "--memory", "1g", *place, self.master
            )
        stage.wait(
            lambda: self._log("127.0.0.1").read_text().count("Registering worker") == len(HOSTS),
            lambda: None,
            seconds=START_SECONDS,
            pause_seconds=LOOK_SECONDS,
            late=lambda: f"Spark's workers did not start; see {self._log('127.0.0.1')}",
        )

    def _start(self, name: str, host: str, *arguments: str) -> None:
        command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        command += ["--host", host, "--webui-port", "0", *arguments]
        environment = {**self.environment, "SPARK_LOCAL_IP": host}
        program = Program(f"Spark's {name}", command, self._log(host), environment, self._directory)
        self._stage.cleanup.callback(program.end)

    def _log(self, host: str) -> Path:
        return self._directory / f"{host}.log"
