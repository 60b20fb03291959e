"""A takeover of many tasks sends as many requests as one of a single task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from eosframework.application.control_topic import (
    ControlState,
    ControlTopic,
    committed_key,
    interpret,
)
from eosframework.application.start_positions import StartPositions
from eosframework.config import Start
from eosframework.engine.worker.takeover import Takeover
from eosframework.engine.worker.worker_plan import Plan
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.records import Position, TopicPartition
from eosframework.testing.memory_kafka import MemoryOwnership
from eosframework.transactions.ownership import Claim, Ownership, Stored, add_entries
from eosframework.txnid import TransactionalId
from tests.support.memory.scripted_kafka import OPTIONS, Broker, MemoryLog, MemoryOutputs
from tests.unit.engine.messages import compiled, part_of, sink


class CountedLog(MemoryLog):
    """An input log that counts what it is asked."""

    def __init__(self, broker: Broker, asked: Counter[str]) -> None:
        super().__init__(broker)
        self._asked = asked

    def committed(self, partitions: Sequence[TopicPartition]) -> list[Position]:
        self._asked["committed"] += 1
        return super().committed(partitions)

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self._asked["beginning_offsets"] += 1
        return super().beginning_offsets(partitions)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self._asked["end_offsets"] += 1
        return super().end_offsets(partitions)


class CountedOwnership(MemoryOwnership):
    """An ownership topic that counts how often it is read and written."""

    def __init__(self, asked: Counter[str]) -> None:
        super().__init__()
        self._asked = asked

    def count_in(self, asked: Counter[str]) -> None:
        """Count from now on."""
        self._asked = asked

    def write(self, values: Mapping[bytes, bytes | None]) -> None:
        self._asked["ownership written"] += 1
        super().write(values)

    def read(self) -> Stored:
        self._asked["ownership read"] += 1
        return super().read()


class CountedOutputs(MemoryOutputs):
    """Producers, of which those that are opened are counted."""

    def __init__(self, broker: Broker, asked: Counter[str]) -> None:
        super().__init__(broker)
        self._asked = asked

    def open(self, transactional_ids: Sequence[str]) -> Any:
        self._asked["inits"] += len(transactional_ids)
        return super().open(transactional_ids)


class Page:
    """A registry that counts how often it is read."""

    topic = "app-control"

    def __init__(self, entries: Mapping[str, Any], asked: Counter[str]) -> None:
        self.state = interpret(entries)
        self._asked = asked

    def refresh(self) -> ControlState:
        self._asked["registry"] += 1
        return self.state

    def settled(self) -> ControlState:
        self._asked["registry"] += 1
        return self.state

    def committed_marker(self, sub_topology: str, partition: TopicPartition) -> Any:
        key = committed_key(sub_topology, partition)
        return (self.topic, b"{}", key.encode(), 0, None, None, 0, None)


def leased(partition: int) -> TransactionalId:
    return TransactionalId("app", "sub", partition, f"lease {partition}")


def asked_for(tasks: int, start: Start, known: bool, identify: Any) -> Counter[str]:
    asked: Counter[str] = Counter()
    broker, entries = Broker(), dict[str, Any]()
    for number in range(tasks):
        broker.fill(number, 1, 2)
        place = TopicPartition("in", number)
        if known:
            broker.positions[place] = Position(*place, 1, "eos1;1;0")
            entries[committed_key("sub", place)] = {"topic_id": "id"}
    log = CountedLog(broker, asked)

    def group() -> GroupDescription:
        asked["members"] += 1
        return GroupDescription()

    ledger = StartPositions("app", cast("ControlTopic", Page(entries, asked)), start, members=group)
    plan = Plan("app", {"sub": part_of(compiled(sink()))}, lambda sub, number: identify(number))
    takeover = Takeover(
        plan,
        log,
        MemoryOutputs(broker),
        ledger,
        OPTIONS,
        state=None,
        ownership=Ownership(),
        measures=None,
        clock=lambda: 0.0,
        now=lambda: 0.0,
    )
    partitions = list(broker.inputs)
    opened, starts = takeover.tasks(takeover.by_task(partitions))
    assert len(opened) == tasks
    assert [start.topic_partition for start in starts] == partitions
    assert all(list(task.positions) == [TopicPartition("in", n)] for n, task in enumerate(opened))
    return asked


@pytest.mark.parametrize("known", [False, True], ids=["new partitions", "known partitions"])
@pytest.mark.parametrize("start", [Start.EARLIEST, Start.LATEST])
@pytest.mark.parametrize(
    "identify",
    [lambda number: TransactionalId("app", "sub", number), leased],
    ids=["derived", "leased"],
)
def test_a_takeover_of_64_tasks_asks_what_that_of_one_does(
    identify: Any, start: Start, known: bool
) -> None:
    one = asked_for(1, start, known, identify)
    assert asked_for(64, start, known, identify) == one
    assert one["committed"] == 1
    assert one["registry"] <= 3


def test_a_worker_that_follows_another_on_64_partitions_asks_what_it_does_for_one() -> None:
    """K0 to K5: an id of its own and its predecessor's, two readings and writes, the offsets."""
    one = asked_of_a_successor(1)
    assert asked_of_a_successor(64) == one
    assert one == {
        "ownership written": 2,
        "ownership read": 2,
        "inits": 2,
        "committed": 1,
        "beginning_offsets": 1,
        "registry": one["registry"],
        "members": 1,
    }
    assert one["registry"] <= 3


def asked_of_a_successor(tasks: int) -> Counter[str]:
    """Count the requests of a worker with an id of its own, which follows one that crashed."""
    asked: Counter[str] = Counter()
    broker, topic = Broker(), CountedOwnership(Counter())
    names = [TransactionalId.make("app", "sub", number) for number in range(tasks)]
    for number in range(tasks):
        broker.fill(number, 1, 2)
    before = [
        Claim("sub", task.partition, ("in",), "app:worker.before:0", f"b.{task.partition}")
        for task in names
    ]
    add_entries(topic, before)
    topic.count_in(asked)

    def group() -> GroupDescription:
        asked["members"] += 1
        return GroupDescription()

    page = cast("ControlTopic", Page({}, asked))
    ledger = StartPositions("app", page, Start.EARLIEST, members=group)
    plan = Plan(
        "app",
        {"sub": part_of(compiled(sink()))},
        lambda sub, number: names[number],
        own_id=TransactionalId.worker("app", "after"),
    )
    takeover = Takeover(
        plan,
        CountedLog(broker, asked),
        CountedOutputs(broker, asked),
        ledger,
        OPTIONS,
        state=None,
        ownership=Ownership(topic, "after"),
        measures=None,
        clock=lambda: 0.0,
        now=lambda: 0.0,
    )
    opened, _ = takeover.tasks(takeover.by_task(list(broker.inputs)))
    assert {task.group.transactional_id for task in opened} == {"app:worker.after:0"}
    assert len(opened) == tasks
    return asked
