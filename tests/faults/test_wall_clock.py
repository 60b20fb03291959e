"""A due time of the wall clock has the effects of one call, whatever happens to its worker."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import KafkaService
from tests.support.applications.clocked import INTERVAL_MS, Clocked, missed
from tests.support.applications.pipeline import WorkerProcess, wait_until

MakeClocked = Callable[..., Clocked]


@pytest.fixture
def make_clocked(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[MakeClocked]:
    made: list[Clocked] = []

    def make(**options: int) -> Clocked:
        name = unique_name("clocked")
        directory = tmp_path / name
        made.append(Clocked(kafka.bootstrap_servers, name, directory, **options))
        return made[-1]

    yield make
    for clocked in made:
        clocked.stop()


def wait_for_beats(clocked: Clocked, count: int, task: int = 0) -> list[int]:
    """Wait until so many more beats of a task are written; return all of them."""
    wanted = len(clocked.beats(task)) + count
    wait_until(lambda: len(clocked.beats(task)) >= wanted, f"{count} beats of task {task}")
    return clocked.beats(task)


def end(*workers: WorkerProcess) -> None:
    for worker in workers:
        if worker.process.poll() is None:
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0, worker.log[-3000:]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("transaction.before_commit=kill@4", marks=pytest.mark.exhaustive),
        "transaction.after_commit=kill@4",
        pytest.param("state.before_write=kill@4", marks=pytest.mark.exhaustive),
        pytest.param("state.after_write=kill@4", marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_killed_around_a_due_time_repeats_no_call_and_misses_none(
    make_clocked: MakeClocked, fault: str
) -> None:
    """Rules WT2 and WT3. Without input, all of these transactions are those of calls."""
    clocked = make_clocked()
    victim = clocked.start_worker(instance="one", faults=[fault], settings=clocked.keeping)
    victim.wait_for_fault(fault.partition("=")[0])
    assert victim.wait() == -signal.SIGKILL
    clocked.feed(20)
    worker = clocked.start_worker(instance="one", settings=clocked.keeping)
    wait_until(clocked.is_reminded, "every reminder")
    wait_for_beats(clocked, 3)
    end(worker)
    assert clocked.findings() == []


@pytest.mark.exhaustive
def test_a_call_that_was_committed_is_not_repeated_within_its_interval(
    make_clocked: MakeClocked,
) -> None:
    """Rule WT2: the interval is longer than a restart, so its due time is still the latest."""
    clocked = make_clocked(interval_ms=6000)
    fault = "transaction.after_commit=kill@2"
    victim = clocked.start_worker(instance="one", faults=[fault], settings=clocked.keeping)
    victim.wait_for_fault("transaction.after_commit")
    assert victim.wait() == -signal.SIGKILL
    worker = clocked.start_worker(instance="one", settings=clocked.keeping)
    wait_until(lambda: len(clocked.beats()) >= 2, "the next beat")
    end(worker)
    assert clocked.findings() == []


def test_a_due_time_before_a_crash_is_called_after_it_from_the_changelog(
    make_clocked: MakeClocked,
) -> None:
    """Rules WT1 and WT3: the timers are set, and the worker is killed before they are due."""
    clocked = make_clocked()
    clocked.feed(20)
    victim = clocked.start_worker(instance="one", settings=[f"state.directory={clocked.state}"])
    wait_until(lambda: clocked.committed() == clocked.fed, "the timers")
    victim.process.kill()
    victim.process.wait()
    elsewhere = [f"state.directory={clocked.directory / 'elsewhere'}"]
    worker = clocked.start_worker(instance="one", settings=elsewhere)
    wait_until(clocked.is_reminded, "every reminder")
    end(worker)
    assert clocked.findings() == []


def test_a_paused_worker_calls_once_for_the_times_that_it_missed(
    make_clocked: MakeClocked,
) -> None:
    """Rule WT4."""
    clocked = make_clocked()
    worker = clocked.start_worker(instance="one")
    wait_for_beats(clocked, 3)
    worker.signal(signal.SIGSTOP)
    stopped_at = time.time() * 1000
    time.sleep(4)
    resumed_at = time.time() * 1000
    worker.signal(signal.SIGCONT)
    beats = wait_for_beats(clocked, 4)
    end(worker)
    of_the_pause = [t for t in beats if stopped_at < t <= resumed_at - INTERVAL_MS]
    assert len(of_the_pause) <= 1, (stopped_at, resumed_at, beats)
    # One that was due at the end of the pause; the later ones come in their turn.
    assert [after for _, after in missed(beats) if after > resumed_at + 2 * INTERVAL_MS] == []
    assert clocked.findings() == []


@pytest.mark.exhaustive
def test_due_times_follow_their_partition_to_another_worker(make_clocked: MakeClocked) -> None:
    """Rule WT1: a rebalance, and then a worker that is killed."""
    clocked = make_clocked(partitions=2)
    one = clocked.start_worker(instance="one", settings=["worker.session_timeout_seconds=6"])
    wait_for_beats(clocked, 2)
    clocked.feed(20)
    two = clocked.start_worker(instance="two", settings=["worker.session_timeout_seconds=6"])
    two.wait_for_event("task_assigned", 1)
    wait_until(clocked.is_reminded, "every reminder")
    for task in (0, 1):
        wait_for_beats(clocked, 2, task)
    clocked.feed(20)
    one.process.kill()
    one.process.wait()
    wait_until(clocked.is_reminded, "every reminder")
    for task in (0, 1):
        wait_for_beats(clocked, 2, task)
    end(two)
    assert clocked.findings() == []


@pytest.mark.exhaustive
def test_a_zombie_writes_no_call(make_clocked: MakeClocked) -> None:
    """Rule WT2: it stops with a call in its transaction, and its successor makes the call."""
    clocked = make_clocked()
    short = ["worker.session_timeout_seconds=6"]
    zombie = clocked.start_worker(
        instance="one",
        faults=["transaction.before_commit=stop@4"],
        settings=[*short, "worker.transaction_timeout_seconds=300"],
    )
    zombie.wait_for_fault("transaction.before_commit")
    successor = clocked.start_worker(instance="two", settings=short)
    successor.wait_for_event("task_assigned", 1)
    wait_for_beats(clocked, 3)
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    wait_for_beats(clocked, 3)
    end(zombie, successor)
    assert clocked.findings() == []


def test_a_run_until_caught_up_makes_the_calls_that_are_due_and_ends(
    make_clocked: MakeClocked,
) -> None:
    clocked = make_clocked()
    clocked.feed(5)
    clocked.finish()
    known = clocked.beats()
    time.sleep(2)
    began_at = time.time() * 1000
    clocked.finish()
    beats = clocked.beats()[len(known) :]
    assert began_at - INTERVAL_MS < beats[0] < began_at + 60_000
    assert clocked.findings() == []
