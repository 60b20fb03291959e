"""Joins by foreign keys end right, wherever workers are killed while they ask and answer."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import Pipeline

TOPOLOGY = """\
application: NAME
sources:
  lefts: {topic: NAME.in, key: string, value: json, table: true}
  rights: {topic: NAME.rights, key: string, value: json, table: true}
streams:
  inner:
    from: lefts
    steps:
      - join:
          with: rights
          by: "tests.support.applications.functions:both_rows"
          key: "tests.support.applications.functions:foreign_key"
    to: {topic: NAME.inner, value: json}
  left:
    from: lefts
    steps:
      - join:
          with: rights
          by: "tests.support.applications.functions:both_rows"
          key: "tests.support.applications.functions:foreign_key"
          kind: left
    to: {topic: NAME.left, value: json}
"""

RECORDS = 1500
Rows = dict[str, list[Any]]
"""By key, all rows in their order; None: deleted."""


class Foreign(Pipeline):
    """The joins, and all rows that were fed."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path) -> None:
        outputs = {"rights": 1, "inner": 1, "left": 1}
        super().__init__(
            bootstrap_servers, name, directory, topology=TOPOLOGY, partitions=2, outputs=outputs
        )
        self.lefts: Rows = {}
        self.rights: Rows = {}
        self._draw = random.Random(1)
        self.apply()

    @property
    def keeping(self) -> list[str]:
        return [
            f"state.directory={self.directory / 'state'}",
            "worker.session_timeout_seconds=6",
            "worker.commit_interval_seconds=0.1",
        ]

    def change(self, count: int) -> None:
        """Feed random changes of both tables: new rows, moves, nulls and deletions."""
        producer = feeder(self.bootstrap_servers, partitioner="murmur2_random")
        draw = self._draw
        for _ in range(count):
            self._fed += 1
            is_left = draw.random() < 0.7
            topic, rows = (self.source, self.lefts) if is_left else (self.outs, self.rights)
            key = f"{draw.randrange(60 if is_left else 12)}"
            of = draw.choice([None, *map(str, range(14))])
            row = {"n": self._fed, **({"of": of} if is_left else {})}
            sent = draw.choice([row, row, row, None])
            rows.setdefault(key, []).append(sent)
            data = None if sent is None else json.dumps(sent).encode()
            producer.produce(topic, data, key.encode(), timestamp=1_700_000_000_000 + self._fed)
        assert producer.flush(60) == 0

    @property
    def outs(self) -> str:
        return f"{self.name}.rights"

    def findings(self) -> list[str]:
        """Compare the results with a join of the rows that were fed."""
        found: list[str] = []
        for kind in ("inner", "left"):
            last: dict[str, Any] = {}
            for message in self.read(f"{self.name}.{kind}"):
                key = (message.key() or b"").decode()
                data = message.value()
                last[key] = value = None if data is None else json.loads(data)
                if value is not None and not self._was_true(key, value["left"], value["right"]):
                    found.append(f"{kind}: {key} never was {value}")
            for key, rows in self.lefts.items():
                expected = self._expected(rows[-1], is_left=kind == "left")
                if last.get(key) != expected:
                    found.append(f"{kind}: {key} is {last.get(key)}, expected {expected}")
        return found

    def _was_true(self, key: str, left: dict[str, Any], right: Any) -> bool:
        return left in self.lefts[key] and right in [None, *self.rights.get(left["of"], [])]

    def _expected(self, left: Any, *, is_left: bool) -> Any:
        if left is None:
            return None
        right = self.rights.get(left["of"], [None])[-1]
        return {"left": left, "right": right} if right is not None or is_left else None


@pytest.fixture
def foreign(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Foreign]:
    name = unique_name("foreign")
    made = Foreign(kafka.bootstrap_servers, name, tmp_path / name)
    yield made
    made.stop()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "fault",
    [
        "transaction.after_produce=kill@4",
        "transaction.before_commit=kill@7",
        "transaction.after_commit=kill@9",
        "state.before_write=kill@6",
    ],
)
def test_a_worker_killed_at_a_step_loses_no_answer(foreign: Foreign, fault: str) -> None:
    foreign.change(RECORDS)
    victim = foreign.start_worker(instance="one", faults=[fault], settings=foreign.keeping)
    victim.wait_for_fault(fault.partition("=")[0])
    assert victim.wait() == -signal.SIGKILL
    foreign.change(RECORDS)
    foreign.finish_all(instance="one", settings=foreign.keeping)
    assert foreign.findings() == []


@pytest.mark.exhaustive
def test_workers_killed_again_and_again_while_they_ask_and_answer_lose_nothing(
    foreign: Foreign,
) -> None:
    """Two workers share the tasks, so that an answer goes from one process to the other."""
    draw = random.Random(2)
    settings = [*foreign.keeping[1:]]
    homes = [[*settings, f"state.directory={foreign.directory / str(n)}"] for n in range(2)]
    workers = [foreign.start_worker(instance=f"w{n}", settings=homes[n]) for n in range(2)]
    for _ in range(6):
        foreign.change(RECORDS // 3)
        time.sleep(draw.uniform(0.5, 3))
        number = draw.randrange(2)
        workers[number].process.kill()
        assert workers[number].wait() == -signal.SIGKILL
        foreign.change(50)
        workers[number] = foreign.start_worker(instance=f"w{number}", settings=homes[number])
    for worker in workers:
        worker.process.kill()
        assert worker.wait() == -signal.SIGKILL
    foreign.finish_all(instance="w0", settings=homes[0])
    assert foreign.findings() == []
