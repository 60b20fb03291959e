"""A topology that keeps something for each key, and an independent verifier of its outputs.

Every update of a key's total goes out, so the outputs of one key have to count up from 1 without
a gap and without a repetition: a state that was ahead of the log, or behind it, or changed by a
transaction that was aborted, shows in the numbers.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.support.applications.pipeline import Pipeline, number_in

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  totals:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - aggregate:
          initial: "tests.support.applications.functions:no_total"
          add: "tests.support.applications.functions:add_to_total"
    to: {topic: NAME.totals, value: json}
  latest:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count: {emit: commit}
    to: {topic: NAME.latest}
"""


class Totals(Pipeline):
    """The application, its workers, and what its outputs must say."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path, **options: Any) -> None:
        super().__init__(
            bootstrap_servers,
            name,
            directory,
            topology=TOPOLOGY,
            outputs={"totals": 1, "latest": 1},
            **options,
        )
        self.state = directory / "state"
        self.apply()

    @property
    def keeping(self) -> list[str]:
        """Settings that keep the stores in this pipeline's directory."""
        return [f"state.directory={self.state}", "worker.session_timeout_seconds=6"]

    def findings(self) -> list[str]:
        """What is wrong in the outputs; each key's input is known from the input topic."""
        inputs: dict[str, list[int]] = defaultdict(list)
        for message in self.read(self.source):
            number = number_in(message)
            inputs[str(number % 10)].append(number)
        found: list[str] = []
        updates: dict[str, list[dict[str, int]]] = defaultdict(list)
        for message in self.read(f"{self.name}.totals"):
            updates[(message.key() or b"").decode()].append(json.loads(message.value() or b""))
        for key, numbers in inputs.items():
            counts = [update["count"] for update in updates[key]]
            if counts != list(range(1, len(numbers) + 1)):
                found.append(f"totals of {key}: {_first_gap(counts)}, {len(numbers)} were fed")
            elif updates[key][-1]["sum"] != sum(numbers):
                found.append(f"totals of {key}: sum {updates[key][-1]['sum']}, {sum(numbers)} fed")
        latest: dict[str, list[int]] = defaultdict(list)
        for message in self.read(f"{self.name}.latest"):
            count = int.from_bytes(message.value() or b"", "big")
            latest[(message.key() or b"").decode()].append(count)
        for key, numbers in inputs.items():
            if latest[key] != sorted(set(latest[key])):
                found.append(f"latest of {key} does not rise: {latest[key][-20:]}")
            elif latest[key][-1:] != [len(numbers)]:
                found.append(f"latest of {key}: {latest[key][-1:]}, {len(numbers)} were fed")
        return found


def _first_gap(counts: list[int]) -> str:
    for place, count in enumerate(counts, 1):
        if count != place:
            return f"update {place} says {count}"
    return f"{len(counts)} updates"
