"""Tasks that share a producer commit together, fail together, and each keeps what is its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.task.offsets import Progress
from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan, WorkerOptions
from eosframework.errors import (
    DataRejected,
    OutcomeUnknown,
    RecordFailed,
    RecordTooSlow,
    Retriable,
    TaskFenced,
    TransactionAborted,
    TransactionError,
)
from eosframework.records import TopicPartition
from eosframework.testing.memory_kafka import MemoryStartPositions
from eosframework.topology.graph.graph import Operator
from eosframework.transactions.ports import Committed
from eosframework.txnid import TransactionalId
from tests.support.memory.scripted_kafka import (
    OPTIONS,
    Broker,
    MemoryLog,
    MemoryOutputs,
)
from tests.unit.engine.messages import DEAD, compiled, part_of, sink, step

PARTITIONS = 5
TOGETHER = 3
EACH = (25,) * PARTITIONS
FEW = (5,) * PARTITIONS
LONG_SECONDS = 5000.0
SHARED = ["app:sub:0..2", "app:sub:3..5"]


class Clock:
    """Every look takes a while, so that rounds come without waiting."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.05
        assert self.now < LONG_SECONDS, "the worker does not get on"
        return self.now


class Run:
    """A worker of which three partitions share a producer, on a broker in memory."""

    def __init__(
        self,
        broker: Broker,
        source: Any = None,
        options: WorkerOptions = OPTIONS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.log = MemoryLog(broker)
        self.outputs = MemoryOutputs(broker)
        self.worker = Worker(
            plan_of(source or compiled(sink())),
            self.log,
            self.outputs,
            MemoryStartPositions(),
            options,
            clock=clock or Clock(),
        )


def block_of(partition: int) -> str:
    first = partition - partition % TOGETHER
    return f"app:sub:{first}..{first + TOGETHER - 1}"


def plan_of(source: Any) -> Plan:
    """Return a plan with several producer groups of several tasks each.

    A worker has either one for all of its tasks, or one for each.
    """
    return Plan(
        "app",
        {"sub": part_of(source)},
        lambda sub, partition: TransactionalId("app", sub, partition, block_of(partition)),
    )


def filled(*records: int) -> Broker:
    """A broker on which each value names the place at which it was read.

    Args:
        records: how many each partition has.
    """
    broker = Broker()
    for partition, count in enumerate(records or EACH):
        broker.fill(partition, *(100 * partition + n for n in range(count)))
    return broker


def in_order(broker: Broker, *records: int) -> bool:
    """Return whether the values of each partition came once, in order."""
    return all(
        [value for value in broker.values if value // 100 == partition]
        == [100 * partition + n for n in range(count)]
        for partition, count in enumerate(records or EACH)
    )


def test_one_producer_serves_several_partitions_and_all_their_offsets() -> None:
    broker = filled()
    commits: list[int] = []
    run = Run(broker)
    commit = run.outputs.commit

    def counted(asked: Any, _: Any = None) -> Any:
        commits.extend(len(one.positions) for one in asked)
        return commit(asked)

    run.outputs.commit = counted  # pyright: ignore[reportAttributeAccessIssue]
    run.worker.run(until_caught_up=True)
    assert [call for call in broker.calls if call.startswith("init")] == [
        f"init {id_}" for id_ in SHARED
    ]
    assert in_order(broker)
    assert max(commits) == TOGETHER
    assert run.outputs.closed == SHARED
    assert all(p.offset == 25 and p.metadata for p in broker.positions.values())


@given(
    st.lists(
        st.sampled_from(
            [
                (TransactionAborted("no"), False),
                (OutcomeUnknown("?"), True),
                (OutcomeUnknown("?"), False),
                (Retriable("?"), True),
                (TaskFenced("expired"), False),
                (DataRejected("refused"), False),
            ]
        ),
        max_size=4,
    ),
    st.one_of(st.just(EACH), st.tuples(*[st.integers(0, 25)] * PARTITIONS)),
)
def test_whatever_becomes_of_a_commit_happens_to_all_and_nothing_is_lost_or_doubled(
    faults: list[tuple[TransactionError | None, bool]], records: tuple[int, ...]
) -> None:
    """Also for those that have no part in it, or none any more."""
    broker = filled(*records)
    # Several in a row rightly end a worker; where a record is alone, also its refused dead letter.
    for kind, most in ((TaskFenced, 2), (DataRejected, 2 if records == EACH else 1)):
        while sum(isinstance(fault[0], kind) for fault in faults) > most:
            faults.remove(next(fault for fault in faults if isinstance(fault[0], kind)))
    broker.commit_faults = faults
    # A record rejected alone becomes a dead letter.
    source = compiled(sink(on_error=DEAD), on_error=DEAD)
    Run(broker, source).worker.run(until_caught_up=True)
    assert in_order(broker, *records)


@pytest.mark.parametrize(
    "faults",
    [
        [(DataRejected("refused"), False), (OutcomeUnknown("?"), True)],
        [
            (DataRejected("refused"), False),
            (TransactionAborted("no"), False),
            (Retriable("?"), True),
        ],
    ],
    ids=["unknown", "aborted_before"],
)
def test_a_task_whose_replay_turns_out_to_be_committed_lets_its_neighbours_go_on(
    faults: list[tuple[TransactionError | None, bool]],
) -> None:
    """It has nothing more to read, so that no commit of its own ends the replay."""
    records = (1, 22, 0, 0, 0)
    broker = filled(*records)
    broker.commit_faults = faults
    source = compiled(sink(on_error=DEAD), on_error=DEAD)
    Run(broker, source).worker.run(until_caught_up=True)
    assert in_order(broker, *records)


def test_a_record_that_outlasts_a_shared_transaction_runs_twice_until_it_is_named() -> None:
    """Once behind others, and once alone: its neighbours do not join the second time.

    They wait until then with what was fetched. If that counted as work, the worker would fetch one
    record at a time, and those of the task behind all that its neighbours have.
    """
    runs: list[int] = []

    def slow_at_ten(value: int) -> int:
        if value == 210:
            runs.append(value)
            time.sleep(0.25)
        return value

    options = replace(OPTIONS, transaction_timeout_seconds=0.2, batch_records=20)
    source = compiled(step(Operator.MAP_VALUES, slow_at_ten, sink()))
    run = Run(filled(90, 90, 25, 0, 0), source, options, time.monotonic)
    fetch, limits, own = run.log.fetch, list[int](), TopicPartition("in", 2)

    def fetched(limit: int, *others: Any) -> Any:
        found = fetch(limit, *others)
        if runs and not limits:  # Those of its neighbours arrive first.
            run.log.at[own] -= len(found.messages.pop(own))
        if runs and not any(task.has_work for task in run.worker.tasks.values()):
            limits.append(limit)
        return found

    run.log.fetch = fetched  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(RecordTooSlow, match=r"in\[2\]@10 was processed until"):
        run.worker.run(until_caught_up=True)
    assert len(runs) == 2
    assert len(limits) >= 2
    assert min(limits) > 1


def test_what_others_committed_in_the_round_that_ends_the_worker_is_not_committed_again() -> None:
    broker = filled(1, 0, 0, 25, 25)
    source = compiled(sink(on_error=DEAD), on_error=DEAD)
    run = Run(broker, source)
    commit = run.outputs.commit

    def rejects(asked: Any, _: Any = None) -> Any:
        return [
            Committed(DataRejected("refused"))
            if one.output.transactional_id == SHARED[0]
            else commit([one])[0]
            for one in asked
        ]

    run.outputs.commit = rejects  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(RecordFailed, match="dead letter was refused"):
        run.worker.run(until_caught_up=True)
    seen = Counter(value // 100 for value in broker.values)
    assert len(broker.values) == len(set(broker.values))
    assert seen[3] > 0
    assert all(seen[p.partition] == at.offset for p, at in broker.positions.items())


def test_an_aborted_transaction_rewinds_every_partition_of_its_producer_and_no_other() -> None:
    broker = filled(*FEW)
    broker.commit_faults = [(TransactionAborted("no"), False)]
    run = Run(broker)
    sought: list[int] = []
    seek = run.log.seek

    def seeking(positions: Any) -> None:
        sought.extend(position.partition for position in positions)
        seek(positions)

    run.log.seek = seeking
    run.worker.run(until_caught_up=True)
    assert sought == [0, 1, 2]
    assert broker.calls.count(f"abort {SHARED[0]}") == 1
    assert in_order(broker, *FEW)


def test_each_partition_keeps_a_transaction_number_of_its_own() -> None:
    broker = filled(*FEW)
    Run(broker).worker.run(until_caught_up=True)
    broker.fill(1, *(100 + n for n in range(5, 25)))
    Run(broker).worker.run(until_caught_up=True)
    numbers = {p.partition: Progress.parse(broker.positions[p].metadata) for p in broker.positions}
    assert numbers[1].transaction > numbers[0].transaction
    assert numbers[0] == numbers[2]


@pytest.mark.parametrize("bad", [{7}, {107}, {12, 212}, {0, 100, 200}, {224, 300}])
def test_refused_records_are_found_among_those_of_all_partitions(bad: set[int]) -> None:
    broker = filled()
    refused = DataRejected("too large")

    def rejects(asked: Any, _: Any = None) -> Any:
        """As a broker does: the commit fails, and does not say of which record."""
        return [
            Committed(refused) if _bad(one.output.open, bad) else commit([one])[0] for one in asked
        ]

    source = compiled(sink(on_error=DEAD), on_error=DEAD)
    run = Run(broker, source)
    commit = run.outputs.commit
    run.outputs.commit = rejects  # pyright: ignore[reportAttributeAccessIssue]
    run.worker.run(until_caught_up=True)
    dead = [output for output in broker.visible if output[0] == "dead"]
    places = {
        100 * int(headers["__streams.errors.partition"]) + int(headers["__streams.errors.offset"])
        for headers in (dict(output[7]) for output in dead)
    }
    assert places == bad
    assert len(dead) == len(bad)
    assert Counter(broker.values) == Counter(100 * p + n for p in range(5) for n in range(25))


def test_a_task_with_bad_records_replays_no_other_after_its_first() -> None:
    """Every second record of a partition is rejected, beside two with ten times as many."""
    records = (10, 90, 90, 0, 0)
    broker = filled(*records)
    rejected: list[set[int]] = []

    def rejects(asked: Any, _: Any = None) -> Any:
        return [Committed(error) if (error := refusal(one)) else commit([one])[0] for one in asked]

    def refusal(one: Any) -> DataRejected | None:
        if not _bad(one.output.open, {1, 3, 5, 7, 9}):
            return None
        rejected.append({int(output[1]) // 100 for output in one.output.open if output[1]})
        return DataRejected("too large")

    source = compiled(sink(on_error=DEAD), on_error=DEAD)
    run = Run(broker, source, replace(OPTIONS, batch_records=10))
    commit = run.outputs.commit
    run.outputs.commit = rejects  # pyright: ignore[reportAttributeAccessIssue]
    run.worker.run(until_caught_up=True)
    assert in_order(broker, *records)
    assert {frozenset(partitions) for partitions in rejected[1:]} == {frozenset({0})}
    assert len(rejected) > 5


def _bad(open_: Any, bad: set[int]) -> bool:
    return any(output[0] == "out" and int(output[1]) in bad for output in open_)


def test_a_record_that_fails_stops_the_worker_and_what_its_producer_sent_has_its_offsets() -> None:
    def refuse(value: int) -> int:
        if value == 107:
            raise ValueError("seven")
        return value

    broker = filled()
    source = compiled(step(Operator.MAP_VALUES, refuse, sink()))
    with pytest.raises(RecordFailed, match=r"@7"):
        Run(broker, source).worker.run(until_caught_up=True)
    committed = Counter(value // 100 for value in broker.values)
    assert committed[1] == 7
    for partition, position in broker.positions.items():
        assert committed[partition.partition] == position.offset


@pytest.mark.parametrize(
    ("give_up", "kept"),
    [(MemoryLog.revoke, True), (MemoryLog.lose, False)],
    ids=["revoked", "lost"],
)
def test_a_partition_that_goes_takes_those_along_that_share_its_producer(
    give_up: Callable[..., None], kept: bool
) -> None:
    broker = filled(*FEW)
    run = Run(broker)
    run.worker._rounds._interval._due = 1e9
    fetch = run.log.fetch

    def fetched(*asked: Any) -> Any:
        tasks = run.worker.tasks.values()
        if tasks and all(task.has_progress for task in tasks):
            give_up(run.log, TopicPartition("in", 0))
            assert [task.identity.partition for task in run.worker.tasks.values()] == [3, 4]
            run.worker.stop()
        return fetch(*asked)

    run.log.fetch = fetched  # pyright: ignore[reportAttributeAccessIssue]
    run.worker.run()
    assert (0 in {value // 100 for value in broker.values}) == kept
    assert {3, 4} <= {value // 100 for value in broker.values}
    assert run.outputs.closed == SHARED
