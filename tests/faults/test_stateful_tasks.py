"""What tasks remember takes effect exactly once, whatever happens to the worker or its stores."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import KafkaService
from tests.support.applications.pipeline import wait_until
from tests.support.applications.totals import Totals

RECORDS = 3000

MakeTotals = Callable[..., Totals]


@pytest.fixture
def make_totals(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[MakeTotals]:
    made: list[Totals] = []

    def make(**options: int) -> Totals:
        name = unique_name("state")
        made.append(Totals(kafka.bootstrap_servers, name, tmp_path / name, **options))
        return made[-1]

    yield make
    for totals in made:
        totals.stop()


@pytest.fixture
def totals(make_totals: MakeTotals) -> Totals:
    return make_totals(partitions=2)


def finish(totals: Totals, *, settings: list[str] | None = None) -> str:
    """Let a healthy worker read to the end, and return its log."""
    worker = totals.start_worker(
        instance="one", until_caught_up=True, settings=settings or totals.keeping
    )
    code = worker.wait()
    assert code == 0, f"exit code {code}:\n{worker.log[-4000:]}"
    assert totals.findings() == []
    return worker.log


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("takeover.after_assign=kill@1", marks=pytest.mark.exhaustive),
        pytest.param("transaction.after_produce=kill@3", marks=pytest.mark.exhaustive),
        "transaction.before_commit=kill@5",
        pytest.param("transaction.after_commit=kill@5", marks=pytest.mark.exhaustive),
        pytest.param("state.before_write=kill@4", marks=pytest.mark.exhaustive),
        pytest.param("state.after_write=kill@4", marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_killed_at_a_step_leaves_no_trace_in_what_its_tasks_remember(
    totals: Totals, fault: str
) -> None:
    totals.feed(RECORDS)
    victim = totals.start_worker(instance="one", faults=[fault], settings=totals.keeping)
    totals.feed_until_fault(victim, fault.partition("=")[0])
    assert victim.wait() == -signal.SIGKILL
    totals.feed(RECORDS)
    log = finish(totals)
    if fault.startswith("state.before_write"):
        assert "restore_began" in log, "the store lacked what the dead worker had committed"


@pytest.mark.exhaustive
@pytest.mark.parametrize(("others", "reason"), [(0, "is committed"), (3, "is not a committed one")])
def test_a_transaction_that_is_taken_back_is_taken_out_of_the_stores(
    totals: Totals, others: int, reason: str
) -> None:
    """Brokers complete a commit and omit its markers, and abort markers are written by hand.

    Other workers, with stores of their own, may commit before the first one returns.
    """
    victim = totals.start_worker(
        instance="one", settings=totals.keeping, environment={"EOS_TEST_TAKEN_BACK": "5"}
    )

    def is_killed() -> bool:
        totals.feed(totals.partitions)
        return victim.process.poll() is not None

    wait_until(is_killed, "the end of the worker")
    assert victim.wait() == -signal.SIGKILL
    for number in range(others):
        totals.feed(5 * totals.partitions)
        elsewhere = [*totals.keeping, f"state.directory={totals.state}{number}"]
        finish(totals, settings=elsewhere)
    log = finish(totals)
    assert "state_rebuilt" in log
    assert reason in log


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_function_that_never_returns_takes_all_of_its_transaction_along(totals: Totals) -> None:
    """Earlier slices of the transaction are done: their state must not outlive its offsets."""
    totals.feed(5 * RECORDS)
    victim = totals.start_worker(
        instance="one",
        settings=[
            *totals.keeping,
            "worker.transaction_timeout_seconds=12",
            "worker.commit_interval_seconds=3",
        ],
        environment={"EOS_TEST_HANGS_AT": f"{4 * RECORDS}", "EOS_TEST_TURN_SECONDS": "15"},
    )
    assert victim.wait() == 1, victim.log[-3000:]
    assert "has been stuck for 15 s" in victim.log
    finish(totals)


def test_a_worker_killed_while_it_restores_goes_on_where_it_was(totals: Totals) -> None:
    totals.feed(RECORDS)
    finish(totals)
    shutil.rmtree(totals.state)
    totals.feed(RECORDS)
    victim = totals.start_worker(
        instance="one", faults=["state.during_restore=kill@2"], settings=totals.keeping
    )
    victim.wait_for_fault("state.during_restore")
    assert victim.wait() == -signal.SIGKILL
    finish(totals)


@pytest.mark.exhaustive
def test_a_partition_that_moves_takes_its_state_along(totals: Totals) -> None:
    """Each worker has a directory of its own, as on a machine of its own."""
    first = [*totals.keeping, f"state.directory={totals.state}/first"]
    second = [*totals.keeping, f"state.directory={totals.state}/second"]
    one = totals.start_worker(instance="one", settings=first)
    one.wait_for_event("task_assigned", 4)
    totals.feed(RECORDS)
    two = totals.start_worker(instance="two", settings=second)
    two.wait_for_event("state_restored")
    totals.feed(RECORDS)
    one.signal(signal.SIGKILL)
    two.wait_for_event("task_assigned", 4)
    totals.feed(RECORDS)
    two.signal(signal.SIGTERM)
    assert two.wait() == 0
    finish(totals, settings=first)


@pytest.mark.slow
def test_a_zombie_changes_nothing_in_what_its_successor_remembers(totals: Totals) -> None:
    """It wakes up with a transaction open, on the directory that it had locked."""
    totals.feed(RECORDS)
    zombie = totals.start_worker(
        instance="one",
        faults=["transaction.before_commit=stop@6"],
        settings=[*totals.keeping, "worker.transaction_timeout_seconds=6"],
    )
    totals.feed_until_fault(zombie, "transaction.before_commit")
    totals.feed(RECORDS)
    log = totals.start_worker(instance="two", until_caught_up=True, settings=totals.keeping)
    assert log.wait() == 0, log.log[-3000:]
    zombie.signal(signal.SIGCONT)
    wait_until(
        lambda: bool(zombie.events("task_fenced") or zombie.events("partitions_lost")),
        "the zombie noticing",
    )
    totals.feed(RECORDS)
    zombie.signal(signal.SIGTERM)
    zombie.wait()
    finish(totals)
