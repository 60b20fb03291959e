"""The cycle's expectations of its ports, checked in memory and on real Kafka alike.

The decisions of workers, relays and attempts are tested on the in-memory Kafka, with and without
its layer of faults. These cases hold both to the behaviour of real brokers.
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
from eosframework.engine.task.producer_group import ProducerGroup
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.commit_rounds import CommitRounds
from eosframework.engine.worker.group_work import GroupWork, Settled, worker_policy
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.errors import OutcomeUnknown, TaskFenced, TransactionError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.properties import Role, client_properties
from eosframework.kafka.consumer.group import GroupSettings
from eosframework.kafka.consumer.input_log import KafkaInputLog
from eosframework.kafka.producer.producer_pool import ProducerPool
from eosframework.records import Position, TopicPartition
from eosframework.testing.memory_kafka import MemoryInput, MemoryOutputs
from eosframework.transactions.ownership import Ownership
from eosframework.transactions.ports import (
    Commit,
    Delivered,
    Fetched,
    InputLog,
    Output,
    TransactionalOutput,
    TransactionalOutputs,
)
from eosframework.transactions.session.transaction_session import TransactionSession
from eosframework.txnid import TransactionalId
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import read_committed, wait_until
from tests.support.memory.fault_plan import Faults
from tests.support.memory.faulty_kafka import FaultyKafka, FaultyOutputs, faulty_input
from tests.support.memory.scripted_kafka import OPTIONS
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics


@dataclass
class World:
    """One broker with an input of five records, and the ports to it."""

    name: str
    source: TopicPartition
    target: TopicPartition
    log: InputLog
    outputs: TransactionalOutputs
    visible: Callable[[], list[bytes | None]]
    new_log: Callable[[], InputLog]

    def output(self, value: bytes, report: Delivered | None = None) -> Output:
        return (self.target.topic, value, b"k", -1, report, None, 1, None)

    def last_stable(self) -> int:
        """Return the last stable offset of the target."""
        return self.log.end_offsets([self.target])[self.target]


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


def in_memory(name: str, *, faulty: bool) -> Iterator[World]:
    kafka = FaultyKafka({"in": 1, "out": 1})
    for number in range(5):
        kafka.append(("in", str(number).encode(), None, 0, None, None, 0, None))
    faults = Faults()

    def new_log() -> InputLog:
        return faulty_input(kafka, faults, lambda: None) if faulty else MemoryInput(kafka)

    target = TopicPartition("out", 0)
    yield World(
        name,
        TopicPartition("in", 0),
        target,
        new_log(),
        FaultyOutputs(kafka, faults) if faulty else MemoryOutputs(kafka),
        lambda: [message.value() for message in kafka.logs[target].read(0, 1000)],
        new_log,
    )
    assert kafka.misuses == []


def on_kafka(name: str, bootstrap_servers: str) -> Iterator[World]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(f"{name}.in", 1, 1), NewTopic(f"{name}.out", 1, 1)]
    create_topics(admin, topics)
    producer = feeder(bootstrap_servers)
    for number in range(5):
        producer.produce(f"{name}.in", str(number).encode())
    assert producer.flush(60) == 0
    settings = KafkaSettings(bootstrap_servers=bootstrap_servers)

    asked = ClusterAdmin(settings)

    def new_log() -> InputLog:
        client = client_properties(settings, Role.CONSUMER)
        return KafkaInputLog(client, GroupSettings(name), admin=asked)

    outputs = ProducerPool(client_properties(settings, Role.PRODUCER))
    world = World(
        name,
        TopicPartition(f"{name}.in", 0),
        TopicPartition(f"{name}.out", 0),
        new_log(),
        outputs,
        lambda: [m.value() for m in read_committed(bootstrap_servers, f"{name}.out")],
        new_log,
    )
    yield world
    world.log.close(leave=True)
    outputs.stop()


@pytest.fixture(params=["memory", "faulty memory", "kafka"])
def world(request: pytest.FixtureRequest, unique_name: Callable[[str], str]) -> Iterator[World]:
    name = unique_name("conformance")
    if request.param != "kafka":
        yield from in_memory(name, faulty=request.param == "faulty memory")
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


def open_one(world: World, number: int = 0) -> TransactionalOutput:
    [output] = world.outputs.open([f"{world.name}:sub:{number}"])
    return output


def commit(world: World, output: TransactionalOutput, membership: Any) -> TransactionError | None:
    """Commit a transaction without a position."""
    [result] = world.outputs.commit([Commit(output, [], membership)])
    return result.error


def test_partitions_are_assigned_paused_and_read_in_order_to_their_end(world: World) -> None:
    join(world)
    assert not world.log.fetch(10, 0.2).messages
    world.log.resume([world.source])
    fetched = fetch(world, lambda f: bool(f.messages))
    values = [m.value() for m in fetched.messages[world.source]]
    assert values == [b"0", b"1", b"2", b"3", b"4"][: len(values)]
    assert fetch(world, lambda f: bool(f.ends)).ends == {world.source: 5}
    assert world.log.end_offsets([world.source]) == {world.source: 5}
    assert world.log.high_watermarks([world.source]) == {world.source: 5}
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


def test_records_and_markers_take_offsets_and_reports_tell_them(world: World) -> None:
    join(world)
    output = open_one(world)
    offsets: list[int] = []
    for ends in (world.outputs.abort, None, None):
        output.begin()
        report = lambda error, message: offsets.append(message.offset())  # noqa: E731
        output.produce(*world.output(b"a", report))
        output.produce(*world.output(b"b", report))
        output.deliver()
        if ends is not None:
            assert ends([output]) == [None]
        else:
            assert commit(world, output, world.log.membership()) is None
    assert offsets == [0, 1, 3, 4, 6, 7]
    wait_until(lambda: world.last_stable() == 9, "the markers")
    assert world.visible() == [b"a", b"b"] * 2
    world.outputs.close([output])


def test_an_open_transaction_holds_back_later_ones_that_are_committed(world: World) -> None:
    join(world)
    first, second = open_one(world, 0), open_one(world, 1)
    for output, value in ((first, b"first"), (second, b"second")):
        output.begin()
        output.produce(*world.output(value))
        output.deliver()
    assert commit(world, second, world.log.membership()) is None
    assert (world.last_stable(), world.visible()) == (0, [])
    assert commit(world, first, world.log.membership()) is None
    wait_until(lambda: world.last_stable() == 4, "the markers")
    assert world.visible() == [b"first", b"second"]
    world.outputs.close([first, second])


@pytest.mark.parametrize("delivered", [True, False])
def test_a_new_owner_aborts_the_open_transaction_and_fences_the_earlier_one(
    world: World, delivered: bool
) -> None:
    join(world)
    zombie = open_one(world)
    zombie.begin()
    zombie.produce(*world.output(b"zombie"))
    if delivered:
        zombie.deliver()
    owner = open_one(world)
    if delivered:
        wait_until(lambda: world.last_stable() == 2, "the abort marker")
    assert isinstance(commit(world, zombie, world.log.membership()), TaskFenced)
    owner.begin()
    owner.produce(*world.output(b"owner"))
    assert commit(world, owner, world.log.membership()) is None
    assert world.visible() == [b"owner"]
    world.outputs.close([owner, zombie])


def test_the_offsets_of_an_earlier_generation_are_rejected(world: World) -> None:
    join(world)
    earlier = world.log.membership()
    world.log.close(leave=True)
    world.log = world.new_log()
    join(world)
    output = open_one(world)
    output.begin()
    output.produce(*world.output(b"never"))
    position = Position(*world.source, 2, "eos1;1;0")
    [result] = world.outputs.commit([Commit(output, [position], earlier)])
    assert isinstance(result.error, TaskFenced)
    assert world.outputs.abort([output]) == [None]
    assert world.log.committed([world.source])[0].offset is None
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
    policy = worker_policy(30, 1)
    session: TransactionSession[Settled] = TransactionSession(output, policy, time.monotonic)
    group: ProducerGroup[Task] = ProducerGroup(session, time.monotonic)
    GroupWork(group, world.log, Ownership())
    task = Task(
        TransactionalId.make("app", "sub", 0),
        {},
        output,
        group=group,
        markers={},
        transaction_timeout_seconds=30,
        clock=time.monotonic,
    )
    task.start_at([before])
    task.enter(TaskState.RUNNING)
    task._membership = membership
    recovery = CommitRounds(
        *(world.log, world.outputs, Ownership(), WorkerCounts(), OPTIONS),
        time.monotonic,
        lambda _tasks, _seconds: None,
    )
    task.group.begin(task, has_records=False)
    task.output.produce(*world.output(b"timer"))
    commit = task.commit()
    if done:
        assert world.outputs.commit([commit])[0].error is None
    else:
        world.outputs.abort([task.output])
    with capture_logs() as logs:
        recovery.failed(task.group, OutcomeUnknown("no answer came"))
        recovery.recover([task])
    [resolved] = [entry for entry in logs if entry["event"] == "outcome_resolved"]
    assert resolved["outcome"] == ("committed" if done else "not_committed")
    assert world.visible() == ([b"input", b"timer"] if done else [b"input"])
    assert task.commit().positions == [Position(*world.source, 3, f"eos1;{8 if done else 7};0")]
    world.outputs.close([task.output])
