"""A second application, which starts at the end of the input and is reset now and then.

Each of its lives begins with a first start: no record that comes after that is lost, none is
processed twice, and none from before is processed at all. Some records are refused at first, so
they become dead letters, which are replayed while it runs.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.effects import HOSTILE
from tests.soak.operating import Operator
from tests.soak.recording import ends_of
from tests.support.applications.pipeline import Pipeline, WorkerProcess, number_in

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: SOURCE, key: bytes, value: json}
streams:
  copied:
    from: numbers
    on_error: {dead_letter: NAME.dead, replay: true}
    steps: [{map: "tests.soak.latecomer:copy"}]
    to: [{topic: NAME.copied, value: json}]
"""
SETTINGS = (
    "worker.start=latest",
    "worker.session_timeout_seconds=6",
    "worker.transaction_timeout_seconds=8",
    "kafka.request_timeout_seconds=5",
    "log.format=json",
)
REFUSED = 211
"""Of so many numbers one becomes a dead letter."""

STARTS = 5
Offsets = Mapping[int, int]
"""By partition."""


def copy(record: Any) -> Any:
    """Give the record on, unless it comes for the first time and is one of the refused."""
    if is_refused(record.value["n"]) and not record.topic.endswith("-replay"):
        raise ValueError("this number is served when it is replayed")
    return record


def is_refused(number: int) -> bool:
    """Tell whether a number becomes a dead letter."""
    return number % REFUSED == 7


@dataclass
class Life:
    """The time between a first start and a reset.

    Args:
        asked_at: ends of the input before the first start.
        started_at: the same behind it.
        ended_at: positions at the reset; empty: there was none.
    """

    asked_at: Offsets
    started_at: Offsets = field(default_factory=dict)
    ended_at: Offsets = field(default_factory=dict)

    def may_have(self, partition: int, offset: int) -> bool:
        """Tell whether it may have processed an input."""
        return self.asked_at[partition] <= offset < self._end(partition)

    def must_have(self, partition: int, offset: int) -> bool:
        """Tell whether it has to have processed an input."""
        first = self.started_at.get(partition)
        return first is not None and first <= offset < self._end(partition)

    def _end(self, partition: int) -> float:
        return self.ended_at.get(partition, float("inf"))


def findings(
    inputs: Mapping[int, Sequence[int]], lives: Sequence[Life], outputs: Sequence[int]
) -> list[str]:
    """Return what is wrong in the outputs.

    Args:
        inputs: the numbers in the input, by partition in order.
        lives: one after the other.
        outputs: the numbers that went out.
    """
    times = Counter(outputs)
    found: list[str] = []
    for partition, numbers in inputs.items():
        for offset, number in enumerate(numbers):
            may = [life for life in lives if life.may_have(partition, offset)]
            if number == HOSTILE:
                may = []
            must = any(life.must_have(partition, offset) for life in may)
            # A reset deletes what was to be replayed, and what says that it was.
            if is_refused(number) and any(life.ended_at for life in may):
                continue
            if not (must <= times[number] <= bool(may)):
                expected = "once" if must else "once at most" if may else "never"
                refused = ", refused at first" if is_refused(number) else ""
                found.append(
                    f"input {partition}@{offset} (number {number}{refused}) of the application "
                    f"that starts at the end went out {times[number]} times; expected: {expected}"
                )
    return found


class Latecomer:
    """The application, its worker and its operator.

    Args:
        source: topic that it reads.
    """

    def __init__(
        self, bootstrap_servers: str, source: str, partitions: int, name: str, directory: Path
    ) -> None:
        self.lives: list[Life] = []
        self._source = source
        self._turn = threading.Lock()
        self._worker: WorkerProcess | None = None
        self._pipeline = Pipeline(
            bootstrap_servers,
            name,
            directory,
            topology=TOPOLOGY.replace("SOURCE", source),
            partitions=partitions,
            outputs={"copied": 1},
        )
        self._operator = Operator(self._pipeline, SETTINGS)
        self._operator.run("apply")
        self._actions: Mapping[str, Callable[[], None]] = {
            "kill": self._kill,
            "leave": self._leave,
            "replay": self._replay,
            "reset": self._reset,
        }

    def act(self, action: str) -> bool:
        """Start it, or do to it what `action` says; False: something is done to it already."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self.lives:
                self._actions[action]()
            else:
                self._begin_life()
        finally:
            self._turn.release()
        return True

    def finish(self, inputs: Mapping[int, Sequence[int]]) -> list[str]:
        """Let workers read the input and then its dead letters to their ends; judge the outputs."""
        with self._turn:
            if not self.lives:
                return []
            try:
                self._stop()
                # A worker that brokers kept from its input writes dead letters only now.
                self._catch_up()
                self._replay()
                self._catch_up()
            except AssertionError as error:
                return [f"the application that starts at the end: {error}"]
            outputs = self._pipeline.read(f"{self._pipeline.name}.copied")
            return findings(inputs, self.lives, [number_in(message) for message in outputs])

    def end(self) -> None:
        """SIGKILL its worker."""
        self._pipeline.stop()

    @property
    def workers(self) -> Sequence[WorkerProcess]:
        """Every worker that it had."""
        return self._pipeline.workers

    def _begin_life(self) -> None:
        life = Life(self._ends())
        self.lives.append(life)
        for attempt in range(STARTS):
            worker = self._start()
            try:
                worker.wait_for_event("task_assigned", self._pipeline.partitions)
            except AssertionError:
                # It may end while brokers are broken; the next start is the first one still.
                if attempt + 1 == STARTS:
                    raise
                worker.wait()
            else:
                break
        life.started_at = self._ends()

    def _catch_up(self) -> None:
        code = self._start(until_caught_up=True).wait()
        assert code == 0, f"its worker ended with {code}"

    def _kill(self) -> None:
        if self._worker is not None:
            self._worker.signal(signal.SIGKILL)
            self._worker.wait()
        self._start()

    def _leave(self) -> None:
        self._stop()
        self._start()

    def _replay(self) -> None:
        self._operator.run("dead-letters replay", "--all", "--yes")

    def _reset(self) -> None:
        self._stop()
        self.lives[-1].ended_at = self._operator.fence(self._source)
        self._operator.run("reset", "--yes")
        self._operator.run("apply")
        self._begin_life()

    def _start(self, *, until_caught_up: bool = False) -> WorkerProcess:
        self._worker = self._pipeline.start_worker(
            instance="late", settings=SETTINGS, until_caught_up=until_caught_up
        )
        return self._worker

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.signal(signal.SIGTERM)
            self._worker.wait()
            self._worker = None

    def _ends(self) -> dict[int, int]:
        ends = ends_of(
            self._pipeline.bootstrap_servers,
            [self._source],
            self._pipeline.partitions,
            "read_uncommitted",
        )
        return {partition: end for (_, partition), end in ends.items()}
