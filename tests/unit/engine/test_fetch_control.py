"""The size of a worker's queue is bounded, also while partitions wait for each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.task.input_queues import Pending, Queue, TimestampQueue
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.fetch_control import FetchControl
from eosframework.records import TopicPartition
from eosframework.testing import Sent
from eosframework.transactions.ports import InputLog

QUEUE_BYTES = 1000

Times = list[int]


@dataclass
class FakeLog:
    """The partitions that are resumed."""

    flowing: set[TopicPartition] = field(default_factory=set[TopicPartition])
    pauses: int = 0

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.flowing.update(partitions)

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.flowing.difference_update(partitions)
        self.pauses += 1


@dataclass
class FakeTask:
    """A running task's view of its queue."""

    positions: dict[TopicPartition, int]
    queue: Queue
    state: TaskState = TaskState.RUNNING

    @property
    def full_partitions(self) -> list[TopicPartition]:
        return self.queue.full()

    @property
    def waiting_sizes(self) -> dict[TopicPartition, int]:
        return self.queue.sizes()


def pending(
    partition: TopicPartition, times: Times, first: int = 0, size_bytes: int = 0
) -> Pending:
    messages = [Sent(partition.topic, b"", None, t, first + i, None) for i, t in enumerate(times)]
    return Pending(partition, messages, None, size_bytes)


class Bench:
    """Tasks of two partitions each, that wait for a head of both.

    Args:
        logs: of each task, the times of the records of its two partitions.
        record_bytes: the size of every record.
    """

    def __init__(self, logs: list[tuple[Times, Times]], record_bytes: int) -> None:
        self.record_bytes = record_bytes
        self.log = FakeLog()
        self.flowing = FetchControl(cast("InputLog", self.log), QUEUE_BYTES)
        self.left: dict[TopicPartition, Times] = {}
        self.read: dict[TopicPartition, int] = {}
        self.tasks: list[FakeTask] = []
        for number, pair in enumerate(logs):
            own = [TopicPartition(topic, number) for topic in ("a", "b")]
            self.left.update(zip(own, map(list, pair), strict=True))
            times = dict.fromkeys(own, lambda message: message.timestamp()[1])
            queue = TimestampQueue(times, 0.0, lambda: 0.0)
            self.tasks.append(FakeTask(dict.fromkeys(own, 0), queue))
        self.read = dict.fromkeys(self.left, 0)

    @property
    def waiting(self) -> int:
        return sum(sum(task.waiting_sizes.values()) for task in self.tasks)

    def fetch(self, count: int) -> None:
        """Bring at most `count` records of each partition that flows."""
        self.flowing.turn(cast("list[Task]", self.tasks))
        for task in self.tasks:
            for partition in task.positions:
                if partition not in self.log.flowing:
                    continue
                times, self.left[partition] = (
                    self.left[partition][:count],
                    self.left[partition][count:],
                )
                first = self.read[partition]
                self.read[partition] += len(times)
                if times:
                    size_bytes = len(times) * self.record_bytes
                    task.queue.add(pending(partition, times, first, size_bytes))
                else:
                    task.queue.reached_end(partition, first)

    def run(self) -> int:
        """Run what may be run, and return how many records that were."""
        done = 0
        for task in self.tasks:
            while task.queue.is_ready():
                done += len(task.queue.take(3).messages)
        return done


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 20), max_size=30), st.lists(st.integers(0, 20), max_size=30)
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 400),
    st.integers(1, 5),
)
def test_everything_is_run_and_no_more_waits_than_is_allowed_and_a_fetch_brings(
    logs: list[tuple[Times, Times]], record_bytes: int, count: int
) -> None:
    bench = Bench(logs, record_bytes)
    total = sum(len(a) + len(b) for a, b in logs)
    done = 0
    for _ in range(40 * (total + 1)):
        bench.fetch(count)
        assert bench.waiting <= QUEUE_BYTES + len(bench.left) * count * record_bytes
        done += bench.run()
    assert done == total
    assert bench.waiting == 0


def test_a_partition_that_waits_for_another_one_is_held_back_and_the_other_flows() -> None:
    bench = Bench([([], [])], record_bytes=100)
    a, b = bench.left
    bench.flowing.turn(cast("list[Task]", bench.tasks))
    bench.tasks[0].queue.add(pending(a, [1] * 6, size_bytes=600))
    bench.flowing.turn(cast("list[Task]", bench.tasks))
    assert bench.log.flowing == {b}
    bench.tasks[0].queue.add(pending(b, [2], size_bytes=900))
    assert bench.run() == 6
    bench.flowing.turn(cast("list[Task]", bench.tasks))
    assert bench.log.flowing == {a}


def test_small_records_are_never_held_back_for_their_size() -> None:
    bench = Bench([([1] * 100, [2])], record_bytes=0)
    bench.fetch(100)
    bench.fetch(100)
    assert bench.log.pauses == 0
