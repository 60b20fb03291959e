"""Outputs and rows that are decided together, while workers, database and brokers break."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.applications.pipeline import WorkerProcess, wait_until
from tests.support.applications.together import TOGETHER, TogetherWorld
from tests.support.faults.database_proxy import Cut, DatabaseProxy
from tests.support.processes.commands import Folder
from tests.support.servers import debian_postgres
from tests.support.verifiers.asked import (
    ANY_PORT,
    addresses_of,
    not_ready,
    wait_until_ready,
)

MakeTables = Callable[..., TogetherWorld]

STEPS = [
    "transaction.after_send_offsets",
    "decision.before_begin",
    "decision.before_commit",
    "decision.after_commit",
    "transaction.before_commit",
    "transaction.after_commit",
]
AGAIN = ["settlement.after_take", "settlement.before_commit"]
"""Points that a successor reaches; the second one if it produces a decision again."""

QUICK = [
    "worker.session_timeout_seconds=6",
    "worker.transaction_timeout_seconds=10",
    "database.idle_transaction_timeout_seconds=30",
    "worker.batch_records=50",
]


@pytest.fixture
def world(make_tables: MakeTables) -> TogetherWorld:
    world = make_tables(TogetherWorld, topology=TOGETHER, outputs={"doubled": 2})
    world.apply()
    return world


@pytest.mark.parametrize(
    "name", ["the same", pytest.param("another", marks=pytest.mark.exhaustive)]
)
def test_workers_killed_at_each_step_lose_and_double_nothing(
    world: TogetherWorld, name: str
) -> None:
    """V1 to V3, and a successor killed in V4 and V6; the id is the same one or another one."""
    killed = 0
    for step in STEPS:
        instance = "one" if name == "the same" else f"one{step}"
        victim = world.start_worker(instance=instance, faults=[f"{step}=kill@2"], settings=QUICK)
        world.feed_until_fault(victim, step)
        assert victim.wait() == -signal.SIGKILL
        killed += 1
        for again in AGAIN if step == "decision.after_commit" else ():
            instance = "one" if name == "the same" else f"one{again}"
            taker = world.start_worker(
                instance=instance, faults=[f"{again}=kill@1"], settings=QUICK
            )
            taker.wait_for_fault(again)
            assert taker.wait() == -signal.SIGKILL
    world.feed(400)
    last = world.finish(instance="one", settings=QUICK)
    assert world.seen().clean, world.seen()
    assert killed == len(STEPS)
    assert world.nothing_is_open(), last.log[-2000:]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_zombies_of_each_step_change_nothing_when_they_wake_up(world: TogetherWorld) -> None:
    """Each stands still until its successor, the next of them, has its partitions.

    One of them stands still while it produces the decision of its predecessor again.
    """
    zombies = []
    for number, step in enumerate(STEPS[:-1]):
        zombie = world.start_worker(
            instance=f"zombie{number}", faults=[f"{step}=stop@1"], settings=QUICK
        )
        world.feed_until_fault(zombie, step)
        zombies.append(zombie)
    world.feed(400)
    successor = world.start_worker(instance="successor", settings=QUICK)
    world.wait_for(world.fed, "doubled")
    for zombie in zombies:
        assert zombie.process.poll() is None, "the zombie ended before it was continued"
        zombie.signal(signal.SIGCONT)
    noticed = ("task_fenced", "partitions_lost", "assignment_lapsed")
    for zombie in zombies:
        wait_until(lambda zombie=zombie: any(map(zombie.events, noticed)), "the zombie noticing")
    world.feed(400)
    world.wait_for(world.fed, "doubled")
    for worker in (*zombies, successor):
        worker.signal(signal.SIGTERM)
        worker.wait()
    assert successor.process.returncode == 0, successor.log[-3000:]
    world.finish(instance="last", settings=QUICK)
    assert world.seen().clean, world.seen()


def killed_at(world: TogetherWorld, step: str, rule: str) -> None:
    """Kill a worker at a step, and let one of another name finish, both without a rule."""
    without = {"EOS_TEST_WITHOUT": rule} if rule else {}
    options = {"settings": QUICK, "environment": without}
    victim = world.start_worker(instance="one", faults=[f"{step}=kill@2"], **options)
    world.feed_until_fault(victim, step)
    assert victim.wait() == -signal.SIGKILL
    world.start_worker(instance="two", until_caught_up=True, **options).wait()


@pytest.mark.parametrize(
    "rule",
    ["", *(pytest.param(rule, marks=pytest.mark.exhaustive) for rule in ("replay", "others"))],
)
def test_what_was_decided_before_a_kill_is_produced_again(world: TogetherWorld, rule: str) -> None:
    """Without V6 its rows are there, and its outputs are not."""
    killed_at(world, "decision.after_commit", rule)
    if rule:
        assert world.seen().only_row, world.seen()
    else:
        assert world.seen().clean, world.seen()
        [again] = world.workers[-1].events("decision_produced_again")
        assert again["outputs"], again


@pytest.mark.parametrize("rule", ["", pytest.param("comparison", marks=pytest.mark.exhaustive)])
def test_what_was_committed_before_a_kill_is_not_produced_again(
    world: TogetherWorld, rule: str
) -> None:
    """Without the comparison of V6 its outputs are there twice."""
    killed_at(world, "transaction.after_commit", rule)
    assert bool(world.seen().doubled) == bool(rule), world.seen()
    assert world.seen().clean != bool(rule), world.seen()


@pytest.mark.parametrize("rule", ["", pytest.param("fence", marks=pytest.mark.exhaustive)])
def test_a_worker_that_wakes_up_before_its_decision_decides_nothing(
    world: TogetherWorld, rule: str
) -> None:
    """Its successor has written the same rows; without the fence they are there twice."""
    without = {"EOS_TEST_WITHOUT": rule} if rule else {}
    step = "decision.before_begin"
    zombie = world.start_worker(
        instance="zombie", faults=[f"{step}=stop@2"], settings=QUICK, environment=without
    )
    world.feed_until_fault(zombie, step)
    successor = world.start_worker(instance="successor", settings=QUICK)
    world.wait_for(world.fed, "doubled")
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    for worker in (zombie, successor):
        worker.signal(signal.SIGTERM)
        worker.wait()
    assert bool(world.seen().only_row) == bool(rule), world.seen()


def test_a_database_commit_without_an_answer_is_read_and_never_guessed(
    world: TogetherWorld,
) -> None:
    with DatabaseProxy(world.dsn) as proxy:
        worker = world.start_worker(dsn=proxy.dsn, settings=QUICK)
        world.feed(100)
        world.wait_for(100, "doubled")
        for number, cut in enumerate((Cut.IN_COPY, Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT), 1):
            proxy.cut(cut)
            world.feed(100)
            wait_until(lambda number=number: len(proxy.happened) == number, str(cut))
            world.wait_for(world.fed, "doubled")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
    assert world.seen().clean, world.seen()


def continues_with_what_was_decided(world: TogetherWorld, worker: WorkerProcess) -> None:
    """Wake a worker whose transaction was aborted after its decision, and let it do its work."""
    worker.signal(signal.SIGCONT)
    worker.wait_for_event("decision_produced_again")
    world.feed(100)
    world.wait_for(world.fed, "doubled")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    assert world.seen().clean, world.seen()


@pytest.mark.exhaustive
def test_a_transaction_that_expires_after_its_decision_is_produced_again(
    world: TogetherWorld,
) -> None:
    """The brokers abort it while the worker stands still between V2 and V3; it goes on itself."""
    step = "transaction.before_commit"
    worker = world.start_worker(
        faults=[f"{step}=stop@2"], settings=[*QUICK, "worker.session_timeout_seconds=45"]
    )
    world.feed_until_fault(worker, step)
    wait_until(world.nothing_is_open, "the brokers ending the transaction", 60)
    assert world.seen().only_row, "its rows are there, and its outputs are not"
    continues_with_what_was_decided(world, worker)


def test_a_transaction_that_an_operator_aborts_after_its_decision_is_produced_again(
    world: TogetherWorld,
) -> None:
    step = "transaction.before_commit"
    worker = world.start_worker(faults=[f"{step}=stop@2"], settings=QUICK)
    world.feed_until_fault(worker, step)
    folder = Folder(world.directory, world.bootstrap_servers)
    done = folder.run("txn", "abort", worker.ids()[0], "--yes", "--force")
    assert done.exit_code == 0, done.err
    wait_until(world.nothing_is_open, "the transaction is aborted")
    continues_with_what_was_decided(world, worker)


def test_an_unavailable_database_holds_readers_for_a_third_of_the_timeout_at_most(
    world: TogetherWorld,
) -> None:
    with DatabaseProxy(world.dsn) as proxy:
        worker = world.start_worker(
            dsn=proxy.dsn, settings=[*QUICK, f"worker.http_address={ANY_PORT}"]
        )
        world.feed(100)
        world.wait_for(100, "doubled")
        [address] = addresses_of(worker)
        proxy.refuse()
        world.feed(100)
        worker.wait_for_event("transaction_aborted")
        wait_until(world.nothing_is_open, "no transaction holds readers", 10)
        wait_until(lambda: "unavailable" in not_ready(address), "the worker says what it waits for")
        proxy.accept()
        world.wait_for(world.fed, "doubled")
        wait_until_ready(address)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
    assert world.seen().clean, world.seen()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("lags", [False, True], ids=["synchronous", "lagging"])
def test_a_promoted_standby_has_all_that_was_decided_or_is_refused(
    make_tables: MakeTables, tmp_path: Path, *, lags: bool
) -> None:
    with (
        debian_postgres.start_primary(tmp_path / "primary") as primary,
        debian_postgres.start_standby(primary, tmp_path / "standby") as standby,
    ):
        world = make_tables(
            TogetherWorld, dsn=primary.dsn, topology=TOGETHER, outputs={"doubled": 2}
        )
        world.apply()
        if not lags:
            world.see("ALTER SYSTEM SET synchronous_standby_names = '*'")
            world.see("SELECT pg_reload_conf()")
        worker = world.start_worker(dsn=debian_postgres.both(primary, standby), settings=QUICK)
        world.feed(400)
        world.wait_for(400, "doubled")
        if lags:
            followed = "SELECT 1 FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()"
            wait_until(lambda: bool(world.see(followed)), "a standby that has it all")
            standby.stop()
            world.feed(400)
            world.wait_for(800, "doubled")
        else:
            world.feed(4000)
        primary.kill()
        if lags:
            standby.start()
        debian_postgres.promote(standby)
        world.dsn = standby.dsn
        world.feed(100)
        if lags:
            assert worker.wait() == 2, worker.log[-3000:]
            assert "the database was restored, lost its last commits" in worker.log
            return
        world.wait_for(world.fed, "doubled")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
        assert world.seen().clean, world.seen()
