"""Stream time passes an idle upstream task once its own log is run to the end (ADR 20: W5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any, cast

from eosframework.engine.operators.watermarks import Upstream
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.quiet_tasks import Passing
from eosframework.records import Position, TopicPartition

SOURCE, OWN = TopicPartition("in", 0), TopicPartition("keyed", 0)
IDLE = Upstream("keyed", 0)
END = 7


class Log:
    """Its partitions all end at `END`, and the group has committed that of the source."""

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        return [TopicPartition(topic, 0) for topic in topics]

    def decided(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        return [Position(*partition, END) for partition in partitions]

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, END)


class Downstream:
    """What passing asks of a task whose consumer has seen the end of its log."""

    failure, is_bisecting, stores, state = None, False, None, TaskState.RUNNING
    partitions = (OWN,)
    identity = SimpleNamespace(partition=0)

    def __init__(self) -> None:
        self.waiting: set[TopicPartition] = {OWN}
        self.positions = {OWN: 4}
        self.passed: list[Collection[Upstream | str]] = []
        self.time = SimpleNamespace(
            held_by=[IDLE],
            others=50,
            now=10,
            upstream_is_idle=False,
            pass_sources=lambda sources, until: self.passed.append(sources),
        )

    def read_to(self, partition: TopicPartition) -> int:
        return END

    def has_fetched(self, partition: TopicPartition) -> bool:
        return partition in self.waiting


def test_no_time_passes_while_fetched_records_wait_to_be_run() -> None:
    """Among them may be the watermark that takes back that the upstream task is idle."""
    task = Downstream()
    look = looking_at(task)
    assert look() == []
    task.waiting.clear()
    assert look() == [[IDLE]]


def test_records_behind_the_end_that_was_found_hold_no_time() -> None:
    task = Downstream()
    look = looking_at(task)
    assert look() == []
    task.positions[OWN] = END
    assert look() == [[IDLE]]


def looking_at(task: Downstream) -> Callable[[], list[Collection[Upstream | str]]]:
    plan = SimpleNamespace(sources_of=lambda topic: {"in"}, feeding=lambda topics: set[str]())
    passing = Passing(cast("Any", plan), cast("Any", Log()), 0.0, lambda: 0.0)

    def look() -> list[Collection[Upstream | str]]:
        passing.look_at(cast("Any", task), [cast("Any", task)], None)
        return task.passed

    return look
