"""eosframework through its command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from benchmarks.contestants.work import Work
from benchmarks.processes import Command

EACH = "eosframework, a producer each"
A_PRODUCER_EACH = ("worker.ids=partition",)
TOPOLOGY = Path(__file__).with_name("framework_topology.py")


class Framework:
    """`eosframework run-worker` with default settings but for those given.

    Args:
        name: what it goes by in tables.
        settings: `--set` values on top.
        processes: worker processes.
        module: what is run, with the command line of `eosframework`.
        environment: variables on top of the work's.
        topology: what is run.
    """

    share = 1.0

    def __init__(
        self,
        name: str = "eosframework",
        settings: tuple[str, ...] = (),
        processes: int = 1,
        module: str = "eosframework",
        environment: Mapping[str, str] | None = None,
        topology: Path = TOPOLOGY,
    ) -> None:
        self.name = name
        self._settings = settings
        self._processes = processes
        self._module = module
        self._environment = dict(environment or {})
        self._topology = topology

    def prepare(self) -> str:
        return version("eosframework")

    def command(self, work: Work) -> Command:
        arguments = [
            *(sys.executable, "-m", self._module, "run-worker", str(self._topology)),
            *("--set", f"kafka.bootstrap_servers={work.bootstrap_servers}"),
            *("--set", f"worker.commit_interval_seconds={work.commit_interval_seconds}"),
            *("--set", f"state.directory={work.directory / 'stores'}"),
            # `inputs.load` fills partitions in turn, those of a table like those of the orders.
            *("--set", "worker.foreign_partitioner=warn"),
            *("--processes", str(self._processes)),
        ]
        for setting in self._settings:
            arguments += ["--set", setting]
        return Command(arguments, work.environment() | self._environment)
