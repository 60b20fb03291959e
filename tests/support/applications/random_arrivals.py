"""Random records of several partitions, and a driver that runs them in random schedules."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from eosframework.testing import TopologyTestDriver
from eosframework.testing.memory_kafka import MemoryInput
from eosframework.topology.graph.graph import Graph
from eosframework.transactions.ports import Fetched

END = 10**9
"""The time of the last record of each source partition."""

HIDDEN_TURNS = 200
"""More than a partition can be hidden for, at one half for each turn."""


@dataclass(frozen=True)
class Given:
    """A record of a source partition; `written` is the partition's greatest time up to it."""

    source: str
    partition: int
    key: str
    time: int
    number: int
    written: int


@st.composite
def inputs(draw: st.DrawFn) -> list[Given]:
    """Draw the records of one to three partitions of each source, each partition in order."""
    found: list[Given] = []
    for source in ("left", "right"):
        for partition in range(draw(st.integers(1, 3))):
            at = draw(st.integers(100, 120))
            for _ in range(draw(st.integers(0, 12))):
                at += draw(st.sampled_from([0, 1, 1, 2, 5, 30]))
                time = max(1, at - draw(st.sampled_from([0, 0, 0, 1, 3, 8, 20, 40])))
                known = [g.time for g in found if (g.source, g.partition) == (source, partition)]
                written = max([time, *known])
                key = draw(st.sampled_from("ab"))
                found.append(Given(source, partition, key, time, len(found), written))
    return found


class RandomInput(MemoryInput):
    """Fetches from a random subset of the partitions."""

    draw = random.Random(0)

    def fetch(self, limit: int, timeout_seconds: float, gather_seconds: float = 0.0) -> Fetched:
        """Return messages of some partitions."""
        hidden = {p for p in self.at if p not in self.paused and self.draw.random() < 0.5}
        self.paused |= hidden
        try:
            return super().fetch(self.draw.choice([1, 2, limit]), timeout_seconds)
        finally:
            self.paused -= hidden


class RandomDriver(TopologyTestDriver):
    """A driver without a fixed order of fetches; no task counts as idle."""

    def __init__(self, app: Graph, seed: int) -> None:
        self.draw = random.Random(seed)
        super().__init__(app, partitions=3, max_task_idle=None)
        interval = self.draw.choice([0.0, 0.0, 0.3, 2.0])
        self._options = replace(self._options, watermark_interval_seconds=interval)
        self.restart()

    def waits(self) -> bool:
        """Return whether fetched records wait."""
        return any(task.has_waiting for task in self._worker.tasks.values())

    def _new_input(self) -> MemoryInput:
        found = RandomInput(self.kafka)
        found.draw = self.draw
        return found


def ran(
    app: Graph,
    records: Sequence[Given],
    seed: int,
    topics: Sequence[str],
    tables: Sequence[str] = (),
) -> list[Any]:
    """Return what a topology writes for records that arrive in a random order of partitions."""
    return driven(app, records, seed, topics, tables).read("out")


def driven(
    app: Graph,
    records: Sequence[Given],
    seed: int,
    topics: Sequence[str],
    tables: Sequence[str] = (),
) -> TopologyTestDriver:
    """Return a driver that has run records, which arrived in a random order of partitions."""
    driver = RandomDriver(app, seed)
    waiting = {(g.source, g.partition): [] for g in records} | {
        (source, n): list[Given]() for source in topics for n in range(3)
    }
    for record in reversed(records):
        waiting[record.source, record.partition].append(record)
    pause = driver.draw.choice([0.0, 0.1, 0.5])
    while any(waiting.values()):
        place = driver.draw.choice([p for p, left in waiting.items() if left])
        record = waiting[place].pop()
        if record.source in topics:
            key = record.key if record.source in tables else None
            value, place = value_of_record(record, tables), record.partition
            driver.send(record.source, value, key=key, timestamp=record.time, partition=place)
        if driver.draw.random() < pause:
            driver.turn()
        if driver.draw.random() < pause / 10:
            driver.restart(keep_stores=driver.draw.random() < 0.5)
    for source in topics:
        for n in range(3):
            end = {"key": f"end{n}", "number": -1, "time": END}
            key = f"end{n}" if source in tables else None
            driver.send(source, end, key=key, timestamp=END, partition=n)
    driver.run()
    for _ in range(HIDDEN_TURNS):
        if not driver.waits():
            break
        driver.turn()  # Records wait for the end of a partition that was hidden since.
    driver.run()
    return driver


def value_of_record(record: Given, tables: Sequence[str]) -> Any:
    """Return the value of a record; of tables, some rows are deletions."""
    if record.source in tables and record.number % 5 == 0:
        return None
    return {"key": record.key, "number": record.number, "time": record.time}
