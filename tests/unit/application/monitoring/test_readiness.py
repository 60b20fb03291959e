"""Why a worker or a relay is not ready is said by what keeps it."""

from __future__ import annotations

from dataclasses import replace

from eosframework.application.monitoring.metrics.observer import (
    OpenTransactions,
    relay_reasons,
    relay_status,
    worker_reasons,
    worker_status,
)
from eosframework.engine.task.measurements import Measures
from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.engine.worker.worker_views import TaskView, WorkerView
from eosframework.kafka.client.statistics import ClientsSeen, Ends
from eosframework.postgres.outbox.relay import RelayView
from eosframework.postgres.outbox.relay_position import Backlog, RelayCounts
from eosframework.records import TopicPartition

P0, P1 = TopicPartition("in", 0), TopicPartition("in", 1)
RUNNING = TaskView("part[0]", "running", {P0: 10})
WORKER = WorkerView(WorkerCounts(), (RUNNING,), True, Measures().snapshot())
RELAY = RelayView(RelayCounts(), {0: True}, False, None, Measures().snapshot(), None)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def codes(view: WorkerView, open_: OpenTransactions | None = None) -> list[str]:
    open_ = open_ or OpenTransactions(30.0)
    return [reason.code for reason in worker_reasons(view, ClientsSeen(), open_)]


def test_a_worker_whose_tasks_run_is_ready_and_so_is_one_that_has_none() -> None:
    assert codes(WORKER) == []
    assert codes(replace(WORKER, tasks=())) == []


def test_a_worker_is_not_ready_before_the_group_has_told_its_partitions() -> None:
    assert codes(replace(WORKER, tasks=(), was_assigned=False)) == ["unassigned"]


def test_tasks_that_do_not_run_are_named() -> None:
    states = {
        "assigned": "restoring",
        "recovering": "recovering",
        "fenced": "fenced",
        "unclaimed": "unclaimed",
    }
    for state, code in states.items():
        view = replace(WORKER, tasks=(RUNNING, TaskView("part[1]", state, {P1: 0})))
        [reason] = worker_reasons(view, ClientsSeen(), OpenTransactions(30.0))
        assert reason.code == code
        assert "part[1]" in reason.message
        assert "part[0]" not in reason.message


def test_a_database_that_is_away_is_a_reason() -> None:
    assert codes(replace(WORKER, unavailable="the database is unavailable")) == ["unavailable"]


def test_the_status_counts_commits_fences_and_recycles() -> None:
    counts = WorkerCounts(records=9, commits=4, aborts=3, recycles=2, fences=1)
    status = worker_status(replace(WORKER, counts=counts), ClientsSeen())
    shown = {name: status[name] for name in ("records", "commits", "aborts", "recycles", "fences")}
    assert shown == {"records": 9, "commits": 4, "aborts": 3, "recycles": 2, "fences": 1}
    assert relay_status(RELAY, ClientsSeen())["backlog"] is None
    waiting = replace(RELAY, backlog=Backlog(7, 1.5))
    assert relay_status(waiting, ClientsSeen())["backlog"]["messages"] == 7


def test_many_tasks_are_listed_by_the_first_of_them() -> None:
    tasks = tuple(TaskView(f"part[{n}]", "fenced", {}) for n in range(1000))
    [reason] = worker_reasons(replace(WORKER, tasks=tasks), ClientsSeen(), OpenTransactions(30.0))
    assert "part[4] and 995 more" in reason.message


def test_an_open_transaction_is_a_reason_only_where_it_stays_open_and_stands_in_the_way() -> None:
    clock = Clock()
    open_ = OpenTransactions(30.0, clock)
    assert open_.look({P0: 10, P1: 3}, {P0: Ends(10, 15), P1: Ends(5, 9)}) == {}
    clock.now += 31
    # P1 is still to be read up to its last stable offset, so nothing holds it up yet.
    assert open_.look({P0: 10, P1: 3}, {P0: Ends(10, 15), P1: Ends(5, 9)}) == {P0: 31.0}
    seen = ClientsSeen(ends={P0: Ends(10, 20)})
    [reason] = worker_reasons(WORKER, seen, open_)
    assert reason.code == "held_back"
    assert "in[0] is held back" in reason.message
    assert "eosframework txn hanging" in reason.message


def test_transactions_one_after_the_other_are_no_hanging_one() -> None:
    clock = Clock()
    open_ = OpenTransactions(30.0, clock)
    for stable in range(10, 20):
        clock.now += 20
        assert open_.look({P0: stable}, {P0: Ends(stable, stable + 5)}) == {}


def test_a_partition_that_went_elsewhere_is_forgotten() -> None:
    clock = Clock()
    open_ = OpenTransactions(30.0, clock)
    open_.look({P0: 10}, {P0: Ends(10, 15)})
    clock.now += 20
    open_.look({}, {P0: Ends(10, 15)})
    clock.now += 20
    assert open_.look({P0: 10}, {P0: Ends(10, 15)}) == {}


def test_a_relay_is_ready_while_its_shards_run_or_others_have_them_all() -> None:
    seen = ClientsSeen()
    assert relay_reasons(RELAY, seen) == []
    assert relay_reasons(replace(RELAY, shards={}, stands_by=True), seen) == []
    assert [r.code for r in relay_reasons(replace(RELAY, shards={}), seen)] == ["unassigned"]
    away = replace(RELAY, shards={}, unavailable="database away")
    assert [r.code for r in relay_reasons(away, seen)] == ["unavailable"]
    [reason] = relay_reasons(replace(RELAY, shards={0: True, 3: False}), seen)
    assert (reason.code, "shard 3" in reason.message) == ("recovering", True)
