"""Outputs and rows in one decision, on a real broker and a real PostgreSQL."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from eosframework.engine.failures.failure_headers import HEADER_MESSAGE
from tests.support.applications.pipeline import number_in, wait_until
from tests.support.applications.together import CHECKED, TOGETHER, TogetherWorld

MakeTables = Callable[..., TogetherWorld]

LIMITED = "CREATE TABLE doubled (n bigint CHECK (n NOT IN (26, 1000)))"


@pytest.fixture
def make_world(make_tables: MakeTables) -> MakeTables:
    def make(topology: str = TOGETHER, *, table: str | None = None) -> TogetherWorld:
        world = make_tables(TogetherWorld, topology=topology, outputs={"doubled": 2})
        if table is not None:
            world.see(table)
        world.apply()
        return world

    return make


@pytest.mark.every_provider
def test_each_record_has_one_output_and_one_row(make_world: MakeTables) -> None:
    world = make_world()
    world.feed(2000)
    world.finish()
    world.feed(1000)
    worker = world.finish()
    assert world.seen().clean, world.seen()
    assert world.count("doubled") == 3000
    assert not worker.events("decision_produced_again")


def test_a_reader_finds_the_row_of_every_output(make_world: MakeTables) -> None:
    """A row is there before its output, so whoever reads outputs first misses no row."""
    world = make_world()
    worker = world.start_worker(settings=["worker.commit_interval_seconds=0.05"])
    looks = 0
    while looks < 20:
        world.feed(100)
        outputs = {number_in(message) for message in world.read(f"{world.name}.doubled")}
        rows = {n for (n,) in world.see("SELECT n FROM doubled")}
        assert outputs <= rows
        looks += bool(outputs)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]


@pytest.mark.parametrize(
    "policy", ["skip", pytest.param("{dead_letter: NAME.dead}", marks=pytest.mark.exhaustive)]
)
def test_a_record_whose_row_the_database_refuses_is_visible_nowhere(
    make_world: MakeTables, policy: str
) -> None:
    world = make_world(CHECKED.replace("POLICY", policy), table=LIMITED)
    world.feed(2000)
    worker = world.finish()
    assert world.seen(13, 500).clean, world.seen(13, 500)
    assert len(worker.events("output_rejected")) >= 1
    dead = world.read(f"{world.name}.dead")
    if policy == "skip":
        assert not dead
    else:
        assert sorted(map(number_in, dead)) == [13, 500]
        told = str(dict(dead[0].headers() or ())[HEADER_MESSAGE])
        assert "table doubled refuses the row" in told
        assert "violates check constraint" in told


@pytest.mark.exhaustive
def test_a_worker_ends_at_a_record_whose_row_the_database_refuses(
    make_world: MakeTables,
) -> None:
    world = make_world(table=LIMITED)
    world.feed(40)
    worker = world.start_worker(until_caught_up=True)
    assert worker.wait() == 1
    assert "failed in step 'doubled.to(doubled)'" in worker.log
    assert "violates check constraint" in worker.log
    assert not world.seen(*range(40)).only_row
    assert not world.seen(*range(40)).only_output
    world.see("ALTER TABLE doubled DROP CONSTRAINT doubled_n_check")
    world.finish()
    assert world.seen().clean, world.seen()


def test_a_database_that_was_restored_is_refused_until_positions_are_set(
    make_world: MakeTables,
) -> None:
    world = make_world()
    world.feed(400)
    world.finish()
    world.see("CREATE TABLE kept_offsets AS SELECT * FROM eosframework.decided_offsets")
    world.see("CREATE TABLE kept_rows AS SELECT * FROM doubled")
    world.feed(400)
    world.finish()
    world.see(
        "DELETE FROM eosframework.decided_offsets;"
        "INSERT INTO eosframework.decided_offsets SELECT * FROM kept_offsets;"
        "UPDATE eosframework.decisions SET decision = NULL;"
        "DELETE FROM doubled; INSERT INTO doubled SELECT * FROM kept_rows"
    )
    worker = world.start_worker(until_caught_up=True)
    assert worker.wait() == 2, worker.log[-2000:]
    assert "the database was restored" in worker.log
    assert f"positions set APP '{world.source}[" in worker.log
    done = world.run("positions set", f"{world.source}=committed")
    assert done.exit_code == 0, done.err
    world.feed(100)
    world.finish()
    assert len(world.seen().only_output) == 400
    assert not world.seen().only_row


def test_positions_that_are_set_back_are_decided_again(make_world: MakeTables) -> None:
    """What a killed worker had decided is produced before, so nothing of it is missing."""
    world = make_world()
    step = "decision.after_commit"
    victim = world.start_worker(
        faults=[f"{step}=kill@2"], settings=["worker.session_timeout_seconds=6"]
    )
    world.feed_until_fault(victim, step)
    assert victim.wait() == -signal.SIGKILL
    wait_until(
        lambda: world.run("positions set", f"{world.source}=earliest").exit_code == 0,
        "the positions being set once the session has ended",
    )
    assert world.nothing_is_open()
    world.finish()
    seen = world.seen()
    assert not seen.only_row, seen
    assert not seen.only_output, seen
    assert not seen.lost, seen
    assert seen.doubled, "the records were processed again"


@pytest.mark.exhaustive
def test_a_reset_begins_anew_on_both_sides(make_world: MakeTables) -> None:
    world = make_world()
    world.feed(200)
    world.finish()
    done = world.run("reset", "--outputs", "--yes")
    assert done.exit_code == 0, done.err
    assert world.count("doubled") == 0
    world.apply()
    world.finish()
    assert world.kept("doubled", 2).clean, world.kept("doubled", 2)
    assert world.count("doubled") == 200


def test_a_session_that_holds_a_decision_is_ended(make_world: MakeTables) -> None:
    """As after a client that was suspended in its transaction, or gone without a word."""
    world = make_world()
    world.feed(100)
    world.finish()
    with psycopg.connect(world.dsn) as holder:
        holder.execute("SELECT FROM eosframework.decisions FOR UPDATE")
        world.feed(100)
        ended = threading.Event()

        def ask() -> None:
            with pytest.raises(psycopg.errors.AdminShutdown):
                holder.execute("SELECT pg_sleep(60)")
            ended.set()

        asking = threading.Thread(target=ask)
        asking.start()
        world.finish()
        asking.join(60)
        assert ended.is_set()
    assert world.seen().clean, world.seen()


@pytest.mark.parametrize("setting", ["worker.guarantee=at_least_once"])
def test_settings_that_do_not_fit_are_refused(make_world: MakeTables, setting: str) -> None:
    world = make_world()
    worker = world.start_worker(settings=[setting])
    assert worker.wait() == 2
    assert "commit: together, which needs transactions" in worker.log


def audited(world: TogetherWorld) -> tuple[int, Any]:
    done = world.run("audit", "--json")
    return done.exit_code, json.loads(done.out)


@pytest.mark.exhaustive
def test_an_audit_compares_the_rows_of_the_table(make_world: MakeTables) -> None:
    world = make_world(CHECKED.replace("POLICY", "{dead_letter: NAME.dead}"), table=LIMITED)
    world.feed(1000)
    world.finish()
    code, verdict = audited(world)
    assert (code, verdict["lost"], verdict["duplicated"]) == (0, 0, 0), verdict
    world.see("DELETE FROM doubled WHERE n = 4")
    world.see("INSERT INTO doubled VALUES (6), (-1)")
    code, verdict = audited(world)
    found = {kind: verdict[kind] for kind in ("lost", "duplicated", "unexpected")}
    assert (code, found) == (1, {"lost": 1, "duplicated": 2, "unexpected": 1}), verdict
    told = [detail["text"] for detail in verdict["details"]]
    assert told == [
        "the row n=4 of table doubled is not there",
        "table doubled has the row n=6 once more than the input gives it",
        "table doubled has the row n=-1, which no input record gives",
    ]


@pytest.mark.exhaustive
def test_an_audit_of_an_application_that_runs_compares_the_rows(make_world: MakeTables) -> None:
    world = make_world()
    world.feed(10)
    world.finish()
    worker = world.start_worker()
    for _ in range(5):
        world.feed(500)
        code, verdict = audited(world)
        assert code == 0, verdict
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
