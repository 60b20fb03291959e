"""Each outcome of each call has the same consequence for each user of a session.

The log is in memory; tests/faults has the outcomes that a real broker can be made to have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from eosframework.application.replay_marks import PREFIX, marks_in
from eosframework.engine.worker.worker import Worker
from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    EosError,
    IdExpired,
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionFatal,
)
from eosframework.kafka.producer import producer_states as drop_in
from eosframework.operations.dead_letters.replay import _Replay
from eosframework.records import TopicPartition
from eosframework.spark.backfill.cutover import _Cutover, cutover_claim
from eosframework.spark.backfill.job_start import registered
from eosframework.spark.job.job_entry import Job, JobState
from eosframework.testing.memory_kafka import MemoryStartPositions
from eosframework.transactions.session import session_states as session
from eosframework.transactions.session.owned_keys import OwnedKeys
from eosframework.transactions.session.session_states import Policy
from tests.support.memory.faulty_kafka import FaultyOutput
from tests.support.memory.journal import MemoryJournal
from tests.support.memory.scripted_kafka import (
    OPTIONS,
    Broker,
    MemoryLog,
    MemoryOutputs,
)
from tests.unit.engine.messages import compiled, part_of, sink
from tests.unit.engine.test_rounds import Clock as TickingClock
from tests.unit.engine.test_rounds import Plan, TransactionalId
from tests.unit.operations.dead_letters.test_dead_letters import RECORD, letter_of
from tests.unit.postgres.outbox.memory import World as OutboxWorld
from tests.unit.spark.backfill.attempts import World as BackfillWorld
from tests.unit.spark.test_shard_attempts import World as ShardWorld
from tests.unit.spark.test_whole_batch import World as DriverWorld
from tests.unit.spark.test_whole_batch import batch

COUNT = 10
JOB = Job(application="app", name="job", fingerprint={}, created_at=0)


class Clock:
    """Time that passes in sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class User:
    """One user of a session.

    Args:
        run: does the work, which is 10 records.
        done: returns the numbers of the records that are visible.
    """

    name: str
    broker: Broker
    run: Callable[[], object]
    done: Callable[[], list[int]]


def relay() -> User:
    world = OutboxWorld()
    world.table.publish(*map(str, range(COUNT)))
    return User("relay", world.broker, world.caught_up, lambda: [int(v) for v in world.values])


def attempt() -> User:
    world = BackfillWorld(end=COUNT)
    return User("attempt", world.broker, world.run, world.numbers)


def worker() -> User:
    broker = Broker()
    broker.fill(0, *range(COUNT))
    plan = Plan(
        "app",
        {"sub": part_of(compiled(sink()))},
        lambda sub, partition: TransactionalId.make("app", sub, partition),
    )
    log, outputs = MemoryLog(broker), MemoryOutputs(broker)
    one = Worker(plan, log, outputs, MemoryStartPositions(), OPTIONS, clock=TickingClock(0.02))
    return User("worker", broker, lambda: one.run(until_caught_up=True), lambda: broker.values)


def replay() -> User:
    broker, clock = Broker(), Clock()
    outputs = MemoryOutputs(broker)
    journal = MemoryJournal(broker)
    routes = {"in": ("in", 4)}
    one = _Replay("app", outputs, journal, {"dead": "id"}, routes, 30.0, clock, clock.sleep)
    batch = [(letter_of(RECORD, offset=n), (n, n + 1)) for n in range(COUNT)]

    def done() -> list[int]:
        marks = marks_in(journal.settled_under(PREFIX), {"dead": "id"})
        found = marks.get(TopicPartition("dead", 1))
        sent = sum(output[0] == "in" for output in broker.visible)
        marked = [n for n in range(COUNT) if found is not None and n in found]
        assert sent == len(marked), "records and marks are in one transaction"
        return marked

    def run() -> None:
        one.claim()
        one.send(TopicPartition("dead", 1), batch)
        one.raise_refused()

    return User("replay", broker, run, done)


def cutover(monkeypatch: pytest.MonkeyPatch) -> User:
    """C4 and C5 of a cutover without positions."""
    broker, clock = Broker(), Clock()
    module = "eosframework.spark.backfill.cutover"
    monkeypatch.setattr(f"{module}.refuse_positions", lambda *_: None)
    monkeypatch.setattr(f"{module}.refuse_live_ends", lambda *_: None)
    policy = Policy(30.0, successor="another cutover", advice="All changes were made or none")
    one: Any = object.__new__(_Cutover)
    one._positions = []
    one._graph = SimpleNamespace(application="app", sub_topologies=())
    one._state = JobState(JOB)
    one._admin = SimpleNamespace(committed=lambda *_: [])
    one._registry = SimpleNamespace(refresh=lambda: None)
    one._keys = OwnedKeys(
        MemoryOutputs(broker),
        MemoryJournal(broker),
        policy,
        structlog.get_logger("test"),
        lost="",
        clock=clock,
        sleep=clock.sleep,
    )

    def run() -> None:
        [owned] = one._keys.claim([cutover_claim(JOB)])
        assert one._commit(owned) == owned.known

    def done() -> list[int]:
        assert len(broker.visible) <= 1
        return list(range(COUNT)) if broker.visible else []

    return User("cutover", broker, run, done)


def registration() -> User:
    broker, clock = Broker(), Clock()
    outputs, journal = MemoryOutputs(broker), MemoryJournal(broker)

    def run() -> None:
        state = registered(JOB, journal, outputs, 30.0, clock=clock, sleep=clock.sleep)
        assert state.job == JOB

    def done() -> list[int]:
        assert len(broker.visible) <= 1
        return list(range(COUNT)) if broker.visible else []

    return User("registration", broker, run, done)


def shard() -> User:
    world = ShardWorld(COUNT)
    return User("shard", world.broker, world.run, world.written)


def driver() -> User:
    """The driver of a sink of Spark, which records that a batch is open."""
    world = DriverWorld()

    def run() -> None:
        one = world.own()
        while not one.attempt.keys.write(one.owned, (), batch(0, one.attempt.name)):
            continue

    return User("driver", world.broker, run, lambda: list(range(COUNT)) if world.last() else [])


USERS = ("worker", "relay", "attempt", "replay", "cutover", "registration", "shard", "driver")
ENDLESS = ("worker", "relay")
RESUMING = (*ENDLESS, "registration")
"""A registration that was fenced reads the job of the other driver, or writes its own."""


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> User:
    if request.param == "cutover":
        return cutover(monkeypatch)
    users = (worker, relay, attempt, replay, registration, shard, driver)
    return {made.__name__: made for made in users}[request.param]()


def fail(user: User, monkeypatch: pytest.MonkeyPatch, call: str, error: Exception) -> list[bool]:
    """Let one call fail once, and return a list that shows whether it did."""
    fired: list[bool] = []
    if call == "begin":
        begin = FaultyOutput.begin

        def fails(self: FaultyOutput) -> None:
            if not fired:
                fired.append(True)
                raise error
            begin(self)

        monkeypatch.setattr(FaultyOutput, "begin", fails)
    elif call == "produce":

        def refuse(_: Any) -> Exception | None:
            return None if fired else (fired.append(True) or error)

        user.broker.produce_fault = refuse
    else:
        done = call == "commit, done"
        user.broker.commit_faults.append((error, done))  # type: ignore[arg-type]
        fired.append(True)
    return fired


CALLS = ("begin", "produce", "commit")
RESUMES = [
    *((kind, call) for kind in (Retriable, OutcomeUnknown) for call in (*CALLS, "commit, done")),
    *((kind, call) for kind in (TransactionAborted, IdExpired) for call in CALLS),
]


@pytest.mark.parametrize(("kind", "call"), RESUMES)
def test_each_record_counts_once_after_a_failure_that_time_mends(
    user: User, monkeypatch: pytest.MonkeyPatch, kind: Callable[[str], Exception], call: str
) -> None:
    fired = fail(user, monkeypatch, call, kind("a fault"))
    user.run()
    assert fired
    assert not user.broker.commit_faults
    assert sorted(user.done()) == list(range(COUNT))
    assert sum(c.startswith("init") for c in user.broker.calls) >= 2, "the id is taken again"


@pytest.mark.parametrize("call", CALLS)
def test_a_fence_ends_work_that_a_later_process_continues_and_no_service(
    user: User, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    fail(user, monkeypatch, call, TaskFenced("another has the id"))
    if user.name in RESUMING:
        user.run()
        assert sorted(user.done()) == list(range(COUNT))
        return
    with pytest.raises(InstanceFenced, match=r"transactional\.id .* was taken over by another"):
        user.run()
    assert sum(c.startswith("init") for c in user.broker.calls) == 1, "the successor is left alone"
    assert user.done() == []


@pytest.mark.parametrize("call", CALLS)
def test_a_fatal_error_ends_each_with_its_cause(
    user: User, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    fail(user, monkeypatch, call, TransactionFatal("grant Write"))
    with pytest.raises(RunError) as ended:
        user.run()
    assert str(ended.value) == "grant Write"
    assert user.done() == []


@pytest.mark.parametrize("user", [name for name in USERS if name not in ENDLESS], indirect=True)
def test_what_can_be_started_again_gives_up_with_the_same_message(user: User) -> None:
    user.broker.commit_faults.append((OutcomeUnknown("lost"), False))
    user.broker.recycle_faults += [Retriable("away")] * 1000
    with pytest.raises(
        ClusterUnreachable,
        match=r"transactional\.id .*: no transaction was committed for 120 s \(away\)\. ",
    ):
        user.run()
    assert user.done() == []


def test_data_that_is_always_refused_ends_each_with_the_data(user: User) -> None:
    """The relay sets its messages aside instead; the others have no other data here."""
    user.broker.produce_fault = lambda _: DataRejected("too large")
    with pytest.raises(EosError, match="too large"):
        user.run()
    assert user.done() == []


Pair = tuple[session.State, drop_in.ProducerState]
"""States of a session and of its drop-in producer."""

CONFIRMED: dict[session.Event, tuple[drop_in.Event, ...]] = {
    session.Event.BEGUN: (drop_in.Event.BEGUN,),
    session.Event.COMMITTING: (drop_in.Event.COMMIT_SENT,),
    session.Event.COMMITTED: (drop_in.Event.COMMITTED, drop_in.Event.VERIFIED),
    session.Event.SUSPECTED: (
        drop_in.Event.COMMITTED,
        drop_in.Event.DOUBTED,
        drop_in.Event.RECYCLED,
    ),
    session.Event.TAKEN: (drop_in.Event.RECYCLED,),
    session.Event.OWN: (),
    session.Event.OVERTAKEN: (),
    session.Event.UNREAD: (),
}
"""Moves of the drop-in that belong to an event of a session which no failed call caused."""

FAILED = (
    drop_in.Event.REFUSED,
    drop_in.Event.ABORTED,
    drop_in.Event.DOUBTED,
    drop_in.Event.FENCED,
    drop_in.Event.FAILED,
)
"""Moves of the drop-in that a failed call may leave behind; or none."""


def next_pairs(pair: Pair) -> set[Pair]:
    """Return the pairs that one event of the session leads to."""
    found: set[Pair] = set()
    for event, state in session.MOVES[pair[0]].items():
        if (moves := CONFIRMED.get(event)) is not None:
            of_drop_in = pair[1]
            for move in moves:
                assert move in drop_in.MOVES[of_drop_in], (pair, event, move)
                of_drop_in = drop_in.MOVES[of_drop_in][move]
            found.add((state, of_drop_in))
        elif event is not session.Event.ENDED:
            left = {drop_in.MOVES[pair[1]].get(move, pair[1]) for move in FAILED}
            found |= {(state, of_drop_in) for of_drop_in in (pair[1], *left)}
    return found


def test_the_drop_in_allows_each_call_of_a_session_in_each_state_that_a_failure_leaves() -> None:
    pairs: set[Pair] = {(session.State.READY, drop_in.ProducerState.READY)}
    while more := {after for pair in pairs for after in next_pairs(pair)} - pairs:
        pairs |= more
    together = {of: {b for a, b in pairs if a is of} for of in session.State}
    assert together[session.State.READY] == {drop_in.ProducerState.READY}
    assert together[session.State.OPEN] == {drop_in.ProducerState.IN_TRANSACTION}
    assert together[session.State.COMMITTING] == {drop_in.ProducerState.UNDECIDED}
    assert together[session.State.TAKEN] == {drop_in.ProducerState.READY}, "R2 reads a final state"
    unknown = together[session.State.UNKNOWN]
    assert {
        drop_in.ProducerState.UNDECIDED,
        drop_in.ProducerState.FENCED,
        drop_in.ProducerState.FAILED,
    } <= unknown
