"""The worker's decisions, on ports in memory (tests/faults has real brokers)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from eosframework.engine.codegen import compiler as compiling
from eosframework.engine.task import run_slices as slices
from eosframework.engine.task.receipts import HEADER_RECEIPT, Receipt
from eosframework.engine.worker.worker import Worker
from eosframework.engine.worker.worker_plan import Plan
from eosframework.errors import (
    AssignmentLapsed,
    DataRejected,
    InstanceFenced,
    OutcomeUnknown,
    RecordFailed,
    Retriable,
    RunError,
    StartRefused,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
)
from eosframework.records import Position, TopicPartition
from eosframework.testing.memory_kafka import MemoryStartPositions
from eosframework.topology.graph.graph import Operator
from eosframework.transactions.ports import Committed
from eosframework.txnid import TransactionalId
from tests.support.memory.scripted_kafka import (
    OPTIONS,
    P0,
    Broker,
    MemoryLog,
    MemoryOutputs,
)
from tests.unit.engine.messages import DEAD, compiled, part_of, sink, step


@pytest.fixture(autouse=True, params=[compiling.RUN_RECORDS, 3], ids=["", "short runs"])
def runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the worker decides, it decides the same with all records run at once or in runs."""
    monkeypatch.setattr(compiling, "RUN_RECORDS", request.param)
    # With this clock, on which every look takes long, each record would be a transaction.
    monkeypatch.setattr(slices, "FIRST_RECORDS", 100)


class Clock:
    """Every look takes a tenth of a second, so that rounds come without waiting."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


class Run:
    """A worker on a broker in memory."""

    def __init__(self, broker: Broker, *, source: Any = None, receipts: bool = False) -> None:
        self.broker = broker
        self.log = MemoryLog(broker)
        self.outputs = MemoryOutputs(broker)
        plan = Plan(
            "app",
            {"sub": part_of(source or compiled(sink(), receipts=receipts))},
            lambda sub, partition: TransactionalId.make("app", sub, partition),
            receipts,
        )
        self.worker = Worker(
            plan,
            self.log,
            self.outputs,
            MemoryStartPositions(),
            OPTIONS,
            measured=True,
            clock=Clock(),
        )

    def to_the_end(self) -> Broker:
        self.worker.run(until_caught_up=True)
        return self.broker


def broker_with(*values: Any) -> Broker:
    broker = Broker()
    broker.fill(0, *values)
    return broker


def test_takeover_fences_before_it_reads_offsets_and_assigns_last() -> None:
    broker = broker_with(1)
    broker.fill(1, 2)
    Run(broker).to_the_end()
    assert broker.calls[:4] == [
        "init app:sub:0",
        "init app:sub:1",
        "committed",
        "assign",
    ]


def test_outputs_and_offsets_are_committed_together() -> None:
    broker = Run(broker_with(*range(25))).to_the_end()
    assert broker.values == list(range(25))
    assert broker.positions[P0].offset == 25
    assert broker.positions[P0].metadata.startswith("eos1;")


def test_an_aborted_transaction_is_replayed_from_the_committed_offset() -> None:
    broker = broker_with(*range(25))
    broker.commit_faults = [(TransactionAborted("no"), False)] * 2
    assert Run(broker).to_the_end().values == list(range(25))
    assert broker.calls.count("abort app:sub:0") == 2


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("error", [OutcomeUnknown, Retriable])
def test_an_unknown_outcome_is_read_not_guessed(error: type[TransactionError], done: bool) -> None:
    broker = broker_with(*range(25))
    broker.commit_faults = [(error("?"), done)]
    assert Run(broker).to_the_end().values == list(range(25))
    assert "abort app:sub:0" not in broker.calls


@pytest.mark.parametrize(
    "fault",
    [
        None,
        (TransactionAborted("no"), False),
        (OutcomeUnknown("?"), True),
        (OutcomeUnknown("?"), False),
        (TaskFenced("expired"), False),
    ],
)
def test_what_is_measured_is_what_was_committed_whatever_became_of_a_commit(fault: Any) -> None:
    broker = broker_with(*range(25))
    broker.commit_faults = [] if fault is None else [fault]
    run = Run(broker)
    run.to_the_end()
    view = run.worker.view()
    written = Counter(topic for topic, *_ in broker.visible)
    assert (view.measured.read, view.measured.written) == ({"in": 25}, written)
    unknown = fault is not None and isinstance(fault[0], OutcomeUnknown)
    assert view.counts.unknown_outcomes == unknown


def test_an_expired_owner_goes_on_after_two_heartbeats() -> None:
    broker = broker_with(*range(25))
    broker.commit_faults = [(TaskFenced("expired"), False)]
    run = Run(broker)
    assert run.to_the_end().values == list(range(25))
    assert run.worker.counts.fences == 1


def test_a_fenced_task_whose_partition_went_to_another_is_dropped_without_a_reinit() -> None:
    broker = broker_with(*range(25))
    broker.commit_faults = [(TaskFenced("successor"), False)]
    run = Run(broker)
    run.log.next = [lambda: None] * 3
    original = run.log.fetch

    def fetch(*how: Any) -> Any:
        if run.worker.counts.fences and P0 in run.log.at:
            run.log.lose(P0)
            run.worker.stop()
        return original(*how)

    run.log.fetch = fetch  # pyright: ignore[reportAttributeAccessIssue]
    with capture_logs() as logs:
        run.worker.run()
    assert "successor_took_over" in [entry["event"] for entry in logs]
    assert broker.calls.count("init app:sub:0") == 1
    assert broker.values == []


def test_two_rivals_do_not_fence_each_other_for_ever() -> None:
    broker = broker_with(*range(25))
    broker.commit_faults = [(TaskFenced("rival"), False)] * 10
    with pytest.raises(InstanceFenced, match="app:sub:0"):
        Run(broker).to_the_end()
    assert len(broker.commit_faults) == 7


def test_a_suspect_whose_partition_was_committed_by_another_meanwhile_runs_no_record() -> None:
    broker = broker_with(*range(25))
    run = Run(broker)
    commit = run.outputs.commit

    def suspect(commits: Any, _: Any = None) -> Any:
        [result] = commit(commits)
        if broker.calls.count("committed") == 1:
            position = commits[0].positions[0]
            broker.positions[P0] = replace(position, offset=position.offset + 5)
            return [Committed(recycled=True)]
        return [result]

    run.outputs.commit = suspect  # pyright: ignore[reportAttributeAccessIssue]
    run.to_the_end()
    assert run.worker.counts.fences == 1
    assert broker.values == [*range(10), *range(15, 25)]


def test_a_suspect_that_is_still_the_owner_goes_on_where_it_was() -> None:
    broker = broker_with(*range(25))
    run = Run(broker)
    commit = run.outputs.commit
    run.outputs.commit = lambda commits, _=None: [  # pyright: ignore[reportAttributeAccessIssue]
        Committed(result.error, recycled=True) for result in commit(commits)
    ]
    assert run.to_the_end().values == list(range(25))
    assert run.worker.counts.fences == 0


def test_tasks_that_failed_together_are_taken_again_together() -> None:
    broker = broker_with(*range(5))
    broker.fill(1, *range(5))
    broker.commit_faults = [(OutcomeUnknown("broker is away"), False)] * 2
    assert sorted(Run(broker).to_the_end().values) == sorted([*range(5)] * 2)
    first = broker.calls.index("assign") + 1
    assert broker.calls[first : first + 3] == ["init app:sub:0", "init app:sub:1", "committed"]


def test_recovery_is_tried_until_it_succeeds() -> None:
    broker = broker_with(*range(25))
    broker.commit_faults = [(OutcomeUnknown("?"), True)]
    broker.recycle_faults = [Retriable("broker is away")] * 5
    assert Run(broker).to_the_end().values == list(range(25))


def test_what_nobody_mended_ends_the_worker() -> None:
    broker = broker_with(1)
    broker.commit_faults = [(TransactionFatal("no authority"), False)]
    with pytest.raises(RunError, match="no authority"):
        Run(broker).to_the_end()


def test_a_refused_record_is_found_and_the_rest_goes_through() -> None:
    broker = broker_with(*range(25))
    broker.produce_fault = lambda output: (
        DataRejected("too large") if output[:2] == ("out", b"17") else None
    )
    source = compiled(sink(on_error=DEAD), on_error=DEAD)
    assert sorted(Run(broker, source=source).to_the_end().values) == list(range(25))
    [letter] = [output for output in broker.visible if output[0] == "dead"]
    assert dict(letter[7])["__streams.errors.offset"] == b"17"


@pytest.mark.parametrize("records", [25, 9], ids=["", "the end is fetched with the record"])
def test_a_record_that_fails_stops_the_worker_after_what_came_before_it(records: int) -> None:
    def refuse(value: int) -> int:
        if value == 7:
            raise ValueError("seven")
        return value

    broker = broker_with(*range(records))
    source = compiled(step(Operator.MAP_VALUES, refuse, sink()))
    with pytest.raises(RecordFailed, match=r"in\[0\]@7"):
        Run(broker, source=source).to_the_end()
    assert broker.values == list(range(7))
    assert broker.positions[P0].offset == 7
    assert broker.calls[-1] == "leave"


def test_revoked_partitions_are_committed_and_lost_ones_are_not() -> None:
    for give_up, expected in ((MemoryLog.revoke, 10), (MemoryLog.lose, 0)):
        broker = broker_with(*range(10))
        run = Run(broker)
        run.worker._rounds._interval._due = 1e9
        run.log.next = [lambda: None] * 3
        original = run.log.fetch

        def fetch(
            *how: Any,
            run: Run = run,
            give_up: Any = give_up,
            original: Any = original,
        ) -> Any:
            if run.worker.tasks and all(t.has_progress for t in run.worker.tasks.values()):
                give_up(run.log, P0)
                run.worker.stop()
            return original(*how)

        run.log.fetch = fetch  # pyright: ignore[reportAttributeAccessIssue]
        run.worker.run()
        assert len(broker.values) == expected
        assert run.outputs.closed == ["app:sub:0"]


@pytest.mark.parametrize(
    "fault",
    [
        (TransactionAborted("aborted"), False),
        (OutcomeUnknown("unknown, not done"), False),
        (OutcomeUnknown("unknown, done"), True),
        (TaskFenced("expired"), False),
        (DataRejected("refused"), False),
    ],
    ids=lambda fault: f"{type(fault[0]).__name__}-{fault[1]}",
)
def test_receipts_are_numbered_without_a_gap_whatever_becomes_of_a_commit(fault: Any) -> None:
    broker = broker_with(*range(5))
    broker.commit_faults = [fault]
    Run(broker, receipts=True).to_the_end()
    broker.fill(0, *range(5, 9))
    Run(broker, receipts=True).to_the_end()
    found = [Receipt.parse(dict(output[7])[HEADER_RECEIPT]) for output in broker.visible]
    assert [(r.offset, r.number, r.since) for r in found if r] == [(n, n, 0) for n in range(9)]
    assert broker.positions[P0].metadata.endswith(";r1;0;9;8")


def test_the_dead_letter_of_a_refused_record_has_a_receipt() -> None:
    broker = broker_with(*range(5))
    refused = DataRejected("too large")
    broker.produce_fault = lambda o: refused if (o[0], o[1]) == ("out", b"3") else None
    source = compiled(sink(on_error=DEAD), on_error=DEAD, receipts=True)
    Run(broker, source=source, receipts=True).to_the_end()
    found = [Receipt.parse(dict(output[7])[HEADER_RECEIPT]) for output in broker.visible]
    assert [(r.offset, r.number) for r in found if r] == [(n, n) for n in range(5)]
    assert [o[0] for o in broker.visible] == ["out", "out", "out", "dead", "out"]


def test_a_task_that_commits_often_does_not_keep_the_others_from_committing() -> None:
    broker = broker_with(*range(16))
    broker.fill(1, *range(100, 110))
    broker.commit_faults = [(DataRejected("a batch too large"), False)]
    run = Run(broker)
    commit = run.outputs.commit
    rounds: list[int] = []

    def counted(commits: Any, _: Any = None) -> Any:
        rounds.append(len(commits))
        run.worker._rounds._interval._due = 1e9
        return commit(commits)

    run.outputs.commit = counted  # pyright: ignore[reportAttributeAccessIssue]
    run.log.next = [lambda: run.log.assign(*broker.inputs)]
    original = run.log.fetch

    def fetch(*how: Any) -> Any:
        if sum(position.offset or 0 for position in broker.positions.values()) == 26:
            run.worker.stop()
        return original(*how)

    run.log.fetch = fetch  # pyright: ignore[reportAttributeAccessIssue]
    run.worker.run()
    assert sorted(broker.values) == [*range(16), *range(100, 110)]
    assert 2 in rounds


def test_a_worker_that_is_behind_hears_of_rebalances_and_pauses_nothing() -> None:
    """Of a paused partition librdkafka discards what is fetched, and takes a second to fetch it."""
    run = Run(broker_with(*range(100)))
    limits: list[int] = []
    fetch, pause = run.log.fetch, run.log.pause

    def fetched(limit: int, *waits: float) -> Any:
        behind = any(task.has_pending for task in run.worker.tasks.values())
        limits.append(limit)
        assert (limit == 1) == behind
        return fetch(limit, *waits)

    def paused(partitions: Any) -> None:
        assert not partitions, "nothing is to be paused"
        pause(partitions)

    run.log.fetch = fetched  # pyright: ignore[reportAttributeAccessIssue]
    run.log.pause = paused
    assert run.to_the_end().values == [*range(100)]
    assert {1, 10} == set(limits)


class AtEnds(MemoryStartPositions):
    """A ledger of an application that starts at the end."""

    def starts_at_end(self, partition: TopicPartition) -> bool:
        return True

    def starting_positions(self, committed: Sequence[Position], log: Any) -> list[Position]:
        ends = log.end_offsets([p.topic_partition for p in committed])
        return [
            p if p.offset is not None else Position(*p.topic_partition, ends[p.topic_partition])
            for p in committed
        ]


@pytest.mark.parametrize(
    ("errors", "committed", "inits"),
    [
        ([None], True, 1),
        ([OutcomeUnknown("no answer")], True, 2),
        ([OutcomeUnknown("no answer")], False, 2),
        ([TaskFenced("a late init of its own")], False, 2),
        ([TaskFenced("late inits of its own")] * 3, False, 4),
    ],
)
def test_where_a_partition_starts_at_its_end_is_committed_before_a_record_is_run(
    errors: Sequence[TransactionError | None], committed: bool, inits: int
) -> None:
    broker = broker_with(*range(5))
    broker.commit_faults += [(error, committed) for error in errors]
    run = Run(broker)
    run.worker._ledger = run.worker._takeover._ledger = AtEnds()
    run.worker.start()
    run.log.fetch(1, 0)
    assert broker.calls.count("init app:sub:0") == inits
    assert broker.positions == {P0: Position(*P0, 5)}
    assert broker.values == []


def test_a_successor_that_fenced_the_commit_of_a_start_is_not_fenced_in_turn() -> None:
    broker = broker_with(*range(5))
    broker.commit_faults.append((TaskFenced("another worker has it"), False))
    run = Run(broker)
    run.worker._ledger = run.worker._takeover._ledger = AtEnds()
    asked: list[Any] = []

    def confirm(partitions: Sequence[TopicPartition]) -> None:
        asked.append(partitions)
        if len(asked) > 1:
            raise AssignmentLapsed("the group has another assignment by now")

    run.log.confirm_assignment = confirm
    run.worker.start()
    with pytest.raises(AssignmentLapsed):
        run.log.fetch(1, 0)
    assert broker.calls.count("init app:sub:0") == 1
    assert broker.positions == {}


def test_a_worker_without_partitions_waits_for_those_who_have_them() -> None:
    broker = broker_with(*range(5))
    run = Run(broker)
    done: list[bool] = []

    def others_read() -> None:
        broker.positions[P0] = Position(*P0, 5)
        done.append(True)

    def subscribe(topics: Any, listener: Any) -> None:
        run.log.listener = listener
        run.log.next += [run.log.assign, *[lambda: None] * 30, others_read]

    run.log.subscribe = subscribe
    run.to_the_end()
    assert done
    assert broker.values == []


def test_a_first_commit_of_another_worker_between_two_questions_is_no_lost_offset() -> None:
    """The position was read before a commit, and the first commit's marker after it."""
    broker = broker_with(*range(5))
    run = Run(broker)
    ledger, refused = run.worker._ledger, list[bool]()
    starting = ledger.starting_positions

    def starting_positions(*asked: Any) -> list[Position]:
        if not broker.positions:
            broker.positions[P0] = Position(*P0, 5)
            refused.append(True)
            raise StartRefused("the registry knows of a commit, and the offset is gone")
        return starting(*asked)

    def subscribe(topics: Any, listener: Any) -> None:
        run.log.listener = listener
        run.log.next += [run.log.assign]

    ledger.starting_positions = starting_positions  # pyright: ignore[reportAttributeAccessIssue]
    run.log.subscribe = subscribe
    run.to_the_end()
    assert refused
    assert broker.values == []
