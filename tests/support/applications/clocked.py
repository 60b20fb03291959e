"""A topology that the wall clock drives, and an independent verifier of what its calls wrote.

Each task writes a beat at each time of an interval, and a reminder for each number, a second after
it was read. Without input there are beats as well.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.applications.pipeline import Pipeline, number_in

INTERVAL_MS = 500
REMINDED_AFTER_MS = 1000

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  beats:
    from: numbers
    steps:
      - process:
          every: INTERVALms
          on_every: "tests.support.applications.clocked:beat"
          name: beats
    to: {topic: NAME.beats, key: string, value: json}
  reminders:
    from: numbers
    steps:
      - process:
          call: "tests.support.applications.clocked:remind"
          on_wall_timer: "tests.support.applications.clocked:reminder"
          name: reminders
    to: {topic: NAME.reminders, value: json}
"""


def beat(time: int, context: Any) -> list[tuple[str, dict[str, int]]]:
    return [("beat", {"n": time, "task": context.partition})]


def remind(record: Any, context: Any) -> None:
    context.set_timer(context.wall_time + REMINDED_AFTER_MS, clock="wall")


def reminder(key: bytes, time: int, context: Any) -> list[tuple[bytes, dict[str, int]]]:
    return [(key, {"n": int(key)})]


class Clocked(Pipeline):
    """The application, its workers, and what its outputs must say."""

    def __init__(
        self,
        bootstrap_servers: str,
        name: str,
        directory: Path,
        *,
        partitions: int = 1,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        super().__init__(
            bootstrap_servers,
            name,
            directory,
            topology=TOPOLOGY.replace("INTERVAL", str(interval_ms)),
            outputs={"beats": 1, "reminders": 1},
            partitions=partitions,
        )
        self.state = directory / "state"
        self.apply()

    @property
    def keeping(self) -> list[str]:
        """Settings that keep the stores in this pipeline's directory."""
        return [f"state.directory={self.state}", "worker.session_timeout_seconds=6"]

    def beats(self, task: int = 0) -> list[int]:
        """The times of the beats of a task, in the order in which they were written."""
        return self._beats().get(task, [])

    def _beats(self) -> Mapping[int, list[int]]:
        found: dict[int, list[int]] = {}
        for message in self.read(f"{self.name}.beats"):
            value = json.loads(message.value() or b"")
            found.setdefault(value["task"], []).append(value["n"])
        return found

    def is_reminded(self) -> bool:
        """Whether there is a reminder for each number."""
        return len(self._reminded()) >= self.fed

    def _reminded(self) -> Counter[int]:
        return Counter(number_in(message) for message in self.read(f"{self.name}.reminders"))

    def findings(self) -> list[str]:
        """What is wrong in the beats and reminders."""
        found = list[str]()
        for task, times in self._beats().items():
            repeated = [time for time, count in Counter(times).items() if count > 1]
            found += [f"task {task}: beat {time} was written twice" for time in repeated]
            found += [f"task {task}: {t} is no time of the interval" for t in times if t % 500]
            if times != sorted(times):
                found.append(f"task {task}: beats out of order: {times}")
        reminded = self._reminded()
        found += [f"{n} was reminded {count} times" for n, count in reminded.items() if count > 1]
        found += [f"{n} was not reminded" for n in range(self.fed) if n not in reminded]
        return found


def missed(times: list[int]) -> list[tuple[int, int]]:
    """Return the gaps of more than an interval: the beats before and after each."""
    pairs = itertools.pairwise(times)
    return [(before, after) for before, after in pairs if after - before > INTERVAL_MS]
