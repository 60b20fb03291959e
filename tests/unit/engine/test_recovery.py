"""Log events and decisions for a transaction in doubt, and for a fence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from eosframework.engine.task.offsets import Progress, outcome
from eosframework.engine.task.producer_group import ProducerGroup
from eosframework.engine.task.task import Task
from eosframework.engine.task.task_states import TaskState
from eosframework.engine.worker.commit_rounds import CommitRounds
from eosframework.engine.worker.group_work import RIVAL_FENCES, GroupWork, Settled, worker_policy
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.errors import (
    IdExpired,
    InstanceFenced,
    OutcomeUnknown,
    TaskFenced,
    TransactionTooLong,
)
from eosframework.records import Position, TopicPartition
from eosframework.transactions.ownership import Ownership
from eosframework.transactions.session.session_states import Outcome
from eosframework.transactions.session.transaction_session import TransactionSession
from eosframework.txnid import TransactionalId
from tests.support.memory.scripted_kafka import OPTIONS, P0, Broker, MemoryLog, MemoryOutputs

P1 = TopicPartition("in", 1)

HEARTBEAT_SECONDS = 1.0
TIMEOUT_SECONDS = 30.0


class Bench:
    """One task at offset 5, six transactions old, in recovery; the test sets the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.broker = Broker()
        self.broker.fill(0, *range(10))
        self.broker.positions[P0] = Position(*P0, 5, str(Progress(6, 0)))
        self.log = MemoryLog(self.broker)
        self.log.at[P0] = 5
        self.outputs = MemoryOutputs(self.broker)
        self.counts = WorkerCounts()
        self.ownership = Ownership()
        self.recovery = CommitRounds(
            *(self.log, self.outputs, self.ownership, self.counts, OPTIONS),
            lambda: self.now,
            lambda _tasks, _seconds: None,
        )
        self.task = self.new_task()

    def new_task(self) -> Task:
        [output] = self.outputs.open(["app:sub:0"])
        policy = worker_policy(TIMEOUT_SECONDS, HEARTBEAT_SECONDS)
        session: TransactionSession[Settled] = TransactionSession(output, policy, lambda: self.now)
        group: ProducerGroup[Task] = ProducerGroup(session, lambda: self.now)
        GroupWork(group, self.log, self.ownership)
        task = Task(
            TransactionalId.make("app", "sub", 0),
            {},
            output,
            group=group,
            markers={},
            transaction_timeout_seconds=TIMEOUT_SECONDS,
            clock=lambda: self.now,
        )
        task.start_at([self.broker.positions[P0]])
        task.enter(TaskState.RUNNING)
        return task

    def neighbour(self) -> Task:
        """Return another task with the same producer, at offset 3 of its partition."""
        task = Task(
            TransactionalId.make("app", "sub", 1),
            {},
            self.task.output,
            group=self.task.group,
            markers={},
            transaction_timeout_seconds=TIMEOUT_SECONDS,
            clock=lambda: self.now,
        )
        self.broker.positions[P1] = Position(*P1, 3, str(Progress(2, 0)))
        self.log.at[P1] = 3
        task.start_at([self.broker.positions[P1]])
        task.enter(TaskState.RUNNING)
        return task

    def begin(self) -> None:
        self.task.group.begin(self.task, has_records=True)

    def recover(self, after_seconds: float = 0) -> list[str]:
        """Let time pass and the recovery act; return its events."""
        with capture_logs() as logs:
            self.now += after_seconds
            self.recovery.recover([self.task])
        self.events = {entry["event"]: entry for entry in logs}
        if self.task.state is TaskState.ASSIGNED:  # the worker resumes it
            self.task.enter(TaskState.RUNNING)
        return [entry["event"] for entry in logs]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("done", "became"), [(True, Outcome.COMMITTED), (False, Outcome.NOT_COMMITTED)]
)
def test_a_transaction_without_input_is_resolved_by_its_number(
    bench: Bench, done: bool, became: Outcome
) -> None:
    bench.begin()
    commit = bench.task.commit()
    assert [(p.offset, p.metadata) for p in commit.positions] == [(5, "eos1;7;0")]
    bench.broker.commit_faults = [(OutcomeUnknown("?"), done)]
    [result] = bench.outputs.commit([commit])
    assert result.error is not None
    bench.recovery.failed(bench.task.group, result.error)
    assert bench.recover() == ["outcome_resolved", "task_recovered"]
    assert bench.events["outcome_resolved"]["outcome"] == became
    assert bench.task.commit().positions[0].metadata == f"eos1;{8 if done else 7};0"


def test_what_another_worker_committed_meanwhile_is_not_taken_for_the_transaction_in_doubt(
    bench: Bench,
) -> None:
    bench.begin()
    bench.recovery.failed(bench.task.group, OutcomeUnknown("?"))
    bench.broker.positions[P0] = Position(*P0, 9, str(Progress(9, 0)))
    assert bench.recover() == ["outcome_resolved", "task_fenced"]
    assert bench.events["outcome_resolved"]["outcome"] == "overtaken"
    assert bench.recover(2 * HEARTBEAT_SECONDS)[-1] == "task_recovered"
    assert bench.task.positions == {P0: 9}


def test_one_transaction_of_another_worker_is_not_taken_for_the_one_in_doubt(bench: Bench) -> None:
    """It wrote the number that this one would have written, and its own positions."""
    bench.begin()
    assert [p.offset for p in bench.task.commit().positions] == [5]
    bench.recovery.failed(bench.task.group, OutcomeUnknown("?"))
    bench.broker.positions[P0] = Position(*P0, 9, str(Progress(7, 0)))
    assert bench.recover() == ["outcome_resolved", "task_fenced"]
    assert bench.events["outcome_resolved"]["outcome"] == "overtaken"
    assert bench.recover(2 * HEARTBEAT_SECONDS)[-1] == "task_recovered"
    assert bench.task.positions == {P0: 9}


def test_a_task_that_took_no_part_in_an_aborted_transaction_stays_in_service(bench: Bench) -> None:
    neighbour = bench.neighbour()
    bench.begin()
    bench.recovery.failed(bench.task.group, TransactionTooLong("?"))
    assert (bench.task.state, neighbour.state) == (TaskState.RECOVERING, TaskState.RUNNING)
    assert not bench.task.group.may_run(neighbour), "its producer is to be recycled"
    assert bench.recover() == ["task_recovered"]
    assert list(bench.events["task_recovered"]["offsets"]) == [str(P0)]
    assert neighbour.positions == {P1: 3}
    assert bench.task.group.may_run(neighbour)


def test_a_task_that_took_no_part_is_rewound_if_another_worker_moved_its_offsets(
    bench: Bench,
) -> None:
    """1. a worker aborts, and is suspended; the partitions move, and another worker commits
    2. it resumes: the offset of the task that stayed must not be the one that it has."""
    neighbour = bench.neighbour()
    bench.begin()
    bench.recovery.failed(bench.task.group, TransactionTooLong("?"))
    bench.broker.positions[P1] = Position(*P1, 8, str(Progress(4, 0)))
    assert bench.recover() == ["task_fenced"]
    assert neighbour.state is TaskState.FENCED
    assert bench.recover(2 * HEARTBEAT_SECONDS)[-1] == "task_recovered"
    assert neighbour.positions == {P1: 8}


def test_positions_that_somebody_set_by_hand_are_no_outcome(bench: Bench) -> None:
    by_hand = replace(bench.broker.positions[P0], offset=2)
    assert bench.task.outcome([by_hand]) is Outcome.OVERTAKEN


def test_the_number_alone_decides() -> None:
    found = [outcome(Progress(6), Progress(n)) for n in (5, 6, 7, 8)]
    assert found == [
        Outcome.OVERTAKEN,
        Outcome.NOT_COMMITTED,
        Outcome.COMMITTED,
        Outcome.OVERTAKEN,
    ]


@pytest.mark.parametrize(
    ("error", "age_seconds", "event"),
    [
        (TaskFenced("?"), TIMEOUT_SECONDS, "transaction_expired"),
        (IdExpired("?"), 1, "transactional_id_expired"),
        (TaskFenced("?"), 1, "fenced_while_owner"),
    ],
)
def test_an_owner_goes_on_after_two_heartbeats_and_says_why_it_was_fenced(
    bench: Bench, error: TaskFenced, age_seconds: float, event: str
) -> None:
    bench.begin()
    bench.now += age_seconds
    bench.recovery.failed(bench.task.group, error)
    assert bench.recover(1.9 * HEARTBEAT_SECONDS) == []
    assert bench.recover(0.1 * HEARTBEAT_SECONDS) == [event, "task_recovered"]
    assert bench.events[event]["transactional_id"] == "app:sub:0"


def test_a_released_partition_is_not_recovered(bench: Bench) -> None:
    bench.begin()
    bench.recovery.failed(bench.task.group, TaskFenced("?"))
    bench.now += 2 * HEARTBEAT_SECONDS
    bench.recovery.recover([])
    assert bench.broker.calls.count("init app:sub:0") == 1, "a successor must not be fenced"


def test_a_partition_that_left_and_came_back_at_once_is_a_new_task(bench: Bench) -> None:
    bench.begin()
    bench.recovery.failed(bench.task.group, TaskFenced("?"))
    bench.task = bench.new_task()
    inits = len(bench.broker.calls)
    assert bench.recover(2 * HEARTBEAT_SECONDS) == []
    assert bench.task.state is TaskState.RUNNING
    assert len(bench.broker.calls) == inits


def test_rivals_do_not_fence_each_other_for_ever_though_both_commit(bench: Bench) -> None:
    def be_fenced_and_commit() -> None:
        bench.begin()
        bench.recovery.failed(bench.task.group, TaskFenced("?"))
        bench.recover(2 * HEARTBEAT_SECONDS)
        bench.task.committed()
        bench.now += 2 * HEARTBEAT_SECONDS

    for _ in range(RIVAL_FENCES - 1):
        be_fenced_and_commit()
    with pytest.raises(InstanceFenced, match="app:sub:0 was taken over 3 times"):
        be_fenced_and_commit()


def test_transactions_that_expire_again_and_again_are_no_rival(bench: Bench) -> None:
    for _ in range(3 * RIVAL_FENCES):
        bench.begin()
        bench.now += TIMEOUT_SECONDS
        bench.recovery.failed(bench.task.group, TaskFenced("?"))
        assert bench.recover(2 * HEARTBEAT_SECONDS)[0] == "transaction_expired"
