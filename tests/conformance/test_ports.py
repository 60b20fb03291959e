"""What the cycle expects of its ports, asked of those in memory and of real Kafka alike.

The worker's decisions are tested on the ports in memory; this is what makes that worth something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from eosframework.config import KafkaSettings
from eosframework.errors import OutcomeUnknown
from eosframework.kafka.client.properties import Role, client_properties
from eosframework.kafka.consumer.group import GroupSettings
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.processing.ports import (
    Commit,
    Fetched,
    InputLog,
    Output,
    TransactionalOutput,
    TransactionalOutputs,
)
from eosframework.processing.task import Task
from eosframework.processing.task_states import TaskState
from eosframework.processing.transaction.overtime import RecordTimer
from eosframework.processing.transaction.recovery import Recovery
from eosframework.processing.worker_plan import WorkerCounts
from eosframework.records import Position, TopicPartition
from eosframework.txnid import TransactionalId
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import read_committed, wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics
from tests.unit.processing.memory import Broker, MemoryLog, MemoryOutputs


@dataclass
class World:
    """One broker with an input of five records, and the ports to it."""

    name: str
    source: TopicPartition
    target: str
    log: InputLog
    outputs: TransactionalOutputs
    visible: Callable[[], list[bytes | None]]

    def output(self, value: bytes) -> Output:
        return (self.target, value, b"k", -1, None, None, 1, None)


class Reader:
    """A listener that starts every partition at what is committed, or 0."""

    def __init__(self, log: InputLog) -> None:
        self.log = log
        self.assigned_: list[TopicPartition] = []

    def assigned(self, partitions: list[TopicPartition]) -> list[Position]:
        self.assigned_ = partitions
        return [
            Position(p.topic, p.partition, p.offset or 0) for p in self.log.committed(partitions)
        ]

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self.assigned_ = []

    lost = revoked


def in_memory(name: str) -> Iterator[World]:
    broker = Broker()
    broker.fill(0, 0, 1, 2, 3, 4)
    yield World(
        name,
        TopicPartition("in", 0),
        "out",
        MemoryLog(broker),
        MemoryOutputs(broker),
        lambda: [output[1] for output in broker.visible],
    )


def on_kafka(name: str, bootstrap_servers: str) -> Iterator[World]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(f"{name}.in", 1, 1), NewTopic(f"{name}.out", 1, 1)]
    create_topics(admin, topics)
    producer = feeder(bootstrap_servers)
    for number in range(5):
        producer.produce(f"{name}.in", str(number).encode())
    assert producer.flush(60) == 0
    settings = KafkaSettings(bootstrap_servers=bootstrap_servers)
    log = KafkaInputLog(client_properties(settings, Role.CONSUMER), GroupSettings(name))
    outputs = ProducerPool(client_properties(settings, Role.PRODUCER))
    yield World(
        name,
        TopicPartition(f"{name}.in", 0),
        f"{name}.out",
        log,
        outputs,
        lambda: [m.value() for m in read_committed(bootstrap_servers, f"{name}.out")],
    )
    log.close(leave=True)
    outputs.stop()


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest, unique_name: Callable[[str], str]) -> Iterator[World]:
    name = unique_name("conformance")
    if request.param == "memory":
        yield from in_memory(name)
    else:
        kafka: Any = request.getfixturevalue("kafka")
        yield from on_kafka(name, kafka.bootstrap_servers)


def join(world: World) -> Reader:
    reader = Reader(world.log)
    world.log.subscribe([world.source.topic], reader)

    def assigned() -> bool:
        world.log.fetch(10, 0.1)
        return bool(reader.assigned_)

    wait_until(assigned, "an assignment")
    return reader


def fetch(world: World, wanted: Callable[[Fetched], bool]) -> Fetched:
    found: list[Fetched] = []

    def fetched() -> bool:
        found.append(world.log.fetch(10, 0.1))
        return wanted(found[-1])

    wait_until(fetched, "what was to be fetched")
    return found[-1]


def open_one(world: World) -> TransactionalOutput:
    [output] = world.outputs.open([f"{world.name}:sub:0"])
    return output


def test_partitions_are_assigned_paused_and_read_in_order_to_their_end(world: World) -> None:
    join(world)
    assert not world.log.fetch(10, 0.2).messages
    world.log.resume([world.source])
    fetched = fetch(world, lambda f: bool(f.messages))
    values = [m.value() for m in fetched.messages[world.source]]
    assert values == [b"0", b"1", b"2", b"3", b"4"][: len(values)]
    assert fetch(world, lambda f: bool(f.ends)).ends == {world.source: 5}
    assert world.log.end_offsets([world.source]) == {world.source: 5}
    assert world.log.beginning_offsets([world.source]) == {world.source: 0}


def test_seek_goes_back(world: World) -> None:
    join(world)
    world.log.resume([world.source])
    fetch(world, lambda f: bool(f.ends))
    world.log.seek([Position(*world.source, 3)])
    again = fetch(world, lambda f: bool(f.messages)).messages[world.source]
    assert [m.offset() for m in again][:1] == [3]


def test_a_commit_makes_outputs_and_position_visible_together(world: World) -> None:
    join(world)
    output = open_one(world)
    membership = world.log.fetch(1, 0).membership
    output.begin()
    output.produce(*world.output(b"a"))
    [result] = world.outputs.commit(
        [Commit(output, [Position(*world.source, 2, "eos1;1;0")], membership)]
    )
    assert result.error is None
    assert world.visible() == [b"a"]
    [position] = world.log.committed([world.source])
    assert (position.offset, position.metadata) == (2, "eos1;1;0")
    world.outputs.close([output])


@pytest.mark.parametrize("way", ["abort", "recycle"])
def test_what_is_not_committed_never_becomes_visible(world: World, way: str) -> None:
    output = open_one(world)
    output.begin()
    output.produce(*world.output(b"never"))
    assert getattr(world.outputs, way)([output]) == [None]
    output.begin()
    output.produce(*world.output(b"after"))
    assert world.outputs.abort([output]) == [None]
    assert world.visible() == []
    world.outputs.close([output])


def test_a_partition_without_commits_has_no_position(world: World) -> None:
    join(world)
    assert world.log.committed([world.source])[0].offset is None


@pytest.mark.parametrize("done", [True, False])
def test_a_transaction_without_input_is_resolved_by_the_number_beside_the_offset(
    world: World, done: bool
) -> None:
    join(world)
    output = open_one(world)
    membership = world.log.fetch(1, 0).membership
    output.begin()
    output.produce(*world.output(b"input"))
    before = Position(*world.source, 3, "eos1;6;0")
    assert world.outputs.commit([Commit(output, [before], membership)])[0].error is None
    task = Task(
        TransactionalId.make("app", "sub", 0),
        {},
        output,
        markers={},
        transaction_timeout_seconds=30,
        timer=RecordTimer(),
        clock=time.monotonic,
    )
    task.start_at([before])
    task.enter(TaskState.RUNNING)
    task._membership = membership
    recovery = Recovery(world.log, world.outputs, 1, WorkerCounts(), time.monotonic)
    task.output.begin()
    task.output.produce(*world.output(b"timer"))
    commit = task.commit()
    if done:
        assert world.outputs.commit([commit])[0].error is None
    else:
        world.outputs.abort([task.output])
    with capture_logs() as logs:
        recovery.failed(task.group, OutcomeUnknown("no answer came"))
        recovery.turn([task.group], time.monotonic())
    [resolved] = [entry for entry in logs if entry["event"] == "outcome_resolved"]
    assert resolved["outcome"] == ("committed" if done else "not_committed")
    assert world.visible() == ([b"input", b"timer"] if done else [b"input"])
    assert task.commit().positions == [Position(*world.source, 3, f"eos1;{8 if done else 7};0")]
    world.outputs.close([task.output])
