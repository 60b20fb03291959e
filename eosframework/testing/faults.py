"""Faults: crash, stop or hold a worker at a named point of its protocol, and report it.

A worker process arms its faults at start. The test that started it reads from a directory which of
them fired, so that a fault that never happened cannot pass for one that was survived.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from eosframework import failpoints
from eosframework.operators.watermarks import WATERMARK_KEY
from eosframework.testing.topology_test_driver import TopologyTestDriver, graph_of
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Aggregate, Emit, Graph
from eosframework.topology.graph.walk import nodes_of

_BATCH_ROWS = (1, 2)
"""Sizes of batches with which a scenario is repeated."""


def crash_everywhere(
    app: Topology | Graph | str,
    scenario: Callable[[TopologyTestDriver], None],
    *,
    partitions: int | Mapping[str, int] = 1,
) -> int:
    """Run a scenario once without a crash, then once per step of the cycle with a crash there.

    Each run must end with the same last value of every key in every topic, and the same stores, as
    the run without a crash; with one partition also with the same records in between.

    Args:
        app: as for the driver.
        scenario: sends records and runs them.
        partitions: as for the driver.

    Returns:
        The number of steps at which it crashed.

    Raises:
        AssertionError: names the step and the difference.
    """
    graph = graph_of(app)
    whole = TopologyTestDriver(graph, partitions=partitions)
    scenario(whole)
    expected = _outcome(whole)
    for step in range(1, whole.steps + 1):
        driver = TopologyTestDriver(graph, partitions=partitions)
        driver.crash_at(step)
        scenario(driver)
        assert driver.crashed, f"the scenario did not come to step {step}; is it deterministic?"
        _compare(_outcome(driver), expected, f"after a crash at step {step} of {whole.steps}")
    return whole.steps


def cut_everywhere(
    app: Topology | Graph | str,
    scenario: Callable[[TopologyTestDriver], None],
    *,
    partitions: int | Mapping[str, int] = 1,
) -> None:
    """Run a scenario with records in batches as they come, then one by one and two by two.

    Each run must have the same result: the sizes of a worker's batches vary, and are others after a
    crash.

    Args:
        app: as for the driver; has batch operators.
        scenario: sends records and runs them.
        partitions: as for the driver.

    Raises:
        AssertionError: names the size and the difference.
    """
    graph = graph_of(app)
    whole = TopologyTestDriver(graph, partitions=partitions)
    scenario(whole)
    expected = _outcome(whole)
    for rows in _BATCH_ROWS:
        driver = TopologyTestDriver(graph, partitions=partitions, batch_rows=rows)
        scenario(driver)
        _compare(_outcome(driver), expected, f"in batches of at most {rows}")


def _compare(found: Mapping[str, Any], expected: Mapping[str, Any], when: str) -> None:
    for name in expected:
        assert found[name] == expected[name], (
            f"{when}, {name} differs: {found[name]!r:.500}, expected {expected[name]!r:.500}"
        )


def _outcome(driver: TopologyTestDriver) -> dict[str, Any]:
    """Return the result of a scenario: all records if their order is given, else the last ones.

    Watermarks are left out: a task announces its time once more after each takeover.
    """
    graph, outcome = driver.graph, dict[str, Any]()
    exact = max(driver.tasks.values(), default=1) == 1 and not _emits_at_commits(graph)
    topics = {topic for part in graph.sub_topologies for topic in part.sink_topics}
    for topic in sorted(topics):
        logs = [driver.kafka.logs[p] for p in driver.kafka.partitions_of(topic)]
        found = (message for log in logs for message in log.messages)
        records = [(m.key_, m.value_, m.timestamp_) for m in found if m.key_ != WATERMARK_KEY]
        last = {key: value for key, value, _ in records}
        outcome[f"topic {topic}"] = records if exact else last
    for part in graph.sub_topologies:
        for store in part.stores:
            outcome[f"store {store.name}"] = driver.state(store.name)
    return outcome


def _emits_at_commits(graph: Graph) -> bool:
    return any(
        isinstance(node, Aggregate) and node.emit is Emit.COMMIT
        for part in graph.sub_topologies
        for node in nodes_of(part)
    )


class Action(StrEnum):
    """The effect of a fault on its process."""

    KILL = "kill"
    """SIGKILL, as in a crash, by the kernel's out-of-memory killer, or when a machine is lost."""
    STOP = "stop"
    """SIGSTOP: the process stands still until a SIGCONT, and may then be a zombie."""
    HOLD = "hold"
    """Waits until the file `release` appears in the directory of the fault's marker."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An action for the n-th time that a point is reached.

    Args:
        point: one of `failpoints.POINTS`.
        hit: fires the n-th time the point is reached, counted from 1, and only then.
    """

    point: str
    action: Action
    hit: int = 1

    def __str__(self) -> str:
        return f"{self.point}={self.action}@{self.hit}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Return the fault of a text that `str` produced."""
        point, _, rest = text.partition("=")
        action, _, hit = rest.partition("@")
        return cls(point, Action(action), int(hit or 1))


def arm(faults: Iterable[Fault], directory: Path) -> None:
    """Arm faults in this process.

    Args:
        faults: at most one for each point.
        directory: in which a file `POINT.fired` appears just before a fault acts.
    """
    for fault in faults:
        failpoints.arm(fault.point, _Armed(fault, directory))


def fired(point: str, directory: Path) -> bool:
    """Return True if the fault at `point` has fired in any process armed with `directory`."""
    return (directory / f"{point}.fired").exists()


class _Armed:
    """The action at one point, with its count of hits."""

    def __init__(self, fault: Fault, directory: Path) -> None:
        self._fault = fault
        self._directory = directory
        self._hits = 0
        self._lock = threading.Lock()

    def __call__(self, point: str) -> None:
        # Points are hit from several threads. A thread that arrives while the process is about to
        # end or stop waits here; otherwise it would commit meanwhile.
        with self._lock:
            self._hits += 1
            if self._hits != self._fault.hit or fired(point, self._directory):
                return
            marker = self._directory / f"{point}.fired"
            marker.write_text(str(os.getpid()), encoding="ascii")
            match self._fault.action:
                case Action.KILL:
                    os.kill(os.getpid(), signal.SIGKILL)
                case Action.STOP:
                    # 1. SIGSTOP to the process is delivered to any of its threads.
                    # 2. Until that thread wakes up, this one would continue and commit.
                    # So the signal is sent to this thread.
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
                case Action.HOLD:
                    pass
        if self._fault.action is Action.HOLD:
            while not (self._directory / "release").exists():
                time.sleep(0.01)
