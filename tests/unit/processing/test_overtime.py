"""The record timer interrupts the thread that started it, and none after it was stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eosframework.errors import RecordTooSlow
from eosframework.process.supervisor import ChildProcess
from eosframework.processing.transaction import overtime
from eosframework.processing.transaction.overtime import Overtime, RecordTimer, end_idle_watcher
from eosframework.processing.worker import Worker
from eosframework.processing.worker_plan import Plan
from eosframework.testing.memory_kafka import MemoryStartPositions
from eosframework.topology.graph.graph import Operator
from eosframework.txnid import TransactionalId
from tests.support.memory.scripted_kafka import (
    OPTIONS,
    Broker,
    MemoryLog,
    MemoryOutputs,
)
from tests.unit.processing.messages import compiled, part_of, sink, step

ROOT = Path(__file__).parents[3]

PATIENCE_SECONDS = 60.0
"""Timeout for an event that is immediate on an idle machine."""

SOON = 0.05
LATE = 3600.0

OTHERS = {"main thread": False, "another thread": True}
Run = Callable[[Callable[[], Any]], Any]


@pytest.fixture(params=OTHERS.values(), ids=list(OTHERS))
def run(request: pytest.FixtureRequest) -> Run:
    """Call a function in the main thread, or in another one, and return what it returns."""
    return in_a_thread if request.param else lambda function: function()


@pytest.fixture(autouse=True)
def watcher() -> Iterator[Callable[[], list[threading.Thread]]]:
    """Return the watchers that are there; none is before and after a test."""
    end_idle_watcher()
    assert not watchers()
    yield watchers
    end_idle_watcher()
    assert not watchers()


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "eos-overtime"]


def in_a_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(function())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


def is_ended(seconds: float, work: Callable[[], Any], timer: RecordTimer | None = None) -> bool:
    """Run a function under a timer, as tasks do; return whether it was ended."""
    timer = timer or RecordTimer()
    try:
        timer.start(seconds)
        work()
    except Overtime:
        return True
    finally:
        try:
            timer.stop()
        except Overtime:
            timer.stop()
    return False


def loop() -> None:
    """Never return, as far as a test sees."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        pass


def sleep() -> None:
    time.sleep(PATIENCE_SECONDS)


def wait_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=PATIENCE_SECONDS)


def read_a_pipe() -> None:
    reading, writing = os.pipe()
    closing = threading.Timer(PATIENCE_SECONDS, os.close, [writing])
    closing.daemon = True
    closing.start()
    try:
        os.read(reading, 1)
    finally:
        closing.cancel()
        closing.join()
        os.close(reading)
        if not closing.finished.is_set():
            os.close(writing)


def worker_of(function: Callable[[Any], Any], *, timeout_seconds: float = LATE) -> Worker:
    """Return a worker that gives five records to a function."""
    broker = Broker()
    broker.fill(0, *range(5))
    plan = Plan(
        "app",
        {"sub": part_of(compiled(step(Operator.MAP_VALUES, function, sink())))},
        lambda sub, partition: TransactionalId.make("app", sub, partition),
    )
    options = replace(OPTIONS, transaction_timeout_seconds=timeout_seconds)
    return Worker(plan, MemoryLog(broker), MemoryOutputs(broker), MemoryStartPositions(), options)


# --- what it ends ------------------------------------------------------------------------


def test_a_loop_that_never_returns_is_ended(run: Run) -> None:
    assert run(lambda: is_ended(SOON, loop))


@pytest.mark.parametrize("call", [sleep, wait_for_a_lock, read_a_pipe])
def test_a_blocking_call_of_the_main_thread_is_ended(call: Callable[[], None]) -> None:
    assert is_ended(SOON, call)


def test_a_blocking_call_of_another_thread_ends_first() -> None:
    timer, lock = RecordTimer(), threading.Lock()
    returned: list[bool] = []

    def block() -> None:
        returned.append(lock.acquire(timeout=PATIENCE_SECONDS))

    def release() -> None:
        wait_for(lambda: timer.raised)
        lock.release()

    lock.acquire()
    releasing = threading.Thread(target=release)
    releasing.start()
    assert in_a_thread(lambda: is_ended(SOON, block, timer))
    releasing.join()


def test_a_record_that_is_in_time_is_left_alone(run: Run) -> None:
    timer = RecordTimer()
    assert not run(lambda: any(is_ended(LATE, lambda: None, timer) for _ in range(1000)))


def test_a_record_that_has_no_time_left_is_ended_at_once(run: Run) -> None:
    assert run(lambda: is_ended(-1, loop))


def test_a_record_that_swallows_everything_is_ended_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overtime, "REPEAT_SECONDS", SOON)
    swallowed: list[BaseException] = []

    def swallow_two() -> None:
        while len(swallowed) < 2:
            try:
                loop()
            except:  # noqa: E722 - as a careless user's
                swallowed.append(sys.exc_info()[1])  # pyright: ignore[reportArgumentType]
        loop()

    assert run(lambda: is_ended(SOON, swallow_two))
    assert [type(error) for error in swallowed] == [Overtime, Overtime]


def test_an_interruption_is_not_repeated_early_because_the_watcher_woke_up(run: Run) -> None:
    timer, other, interruptions = RecordTimer(), RecordTimer(), 0

    def wake_the_watcher() -> None:
        nonlocal interruptions
        timer.start(SOON)
        first: float = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < first + overtime.REPEAT_SECONDS / 2:
            try:
                while time.monotonic() < first + overtime.REPEAT_SECONDS / 2:
                    other.start(LATE)
                    other.next_look = overtime.NEVER  # The next start wakes the watcher.
            except Overtime:
                interruptions += 1
                first = time.monotonic()
        took_seconds = time.monotonic() - first
        timer.stop()
        other.stop()
        if took_seconds < overtime.REPEAT_SECONDS:  # Otherwise this machine stood still.
            assert interruptions == 1

    run(wake_the_watcher)


# --- whom it interrupts ------------------------------------------------------------------


def test_the_thread_that_calls_start_is_interrupted_and_no_other() -> None:
    late, timer = RecordTimer(), RecordTimer()
    assert not is_ended(LATE, lambda: in_a_thread(lambda: is_ended(SOON, loop, timer)), late)
    assert is_ended(SOON, sleep, timer), "the same timer, where it was made"
    made = in_a_thread(RecordTimer)
    assert is_ended(SOON, sleep, made)


def test_an_earlier_deadline_of_another_task_or_timer_wakes_the_watcher(run: Run) -> None:
    def ended() -> list[bool]:
        first, second = RecordTimer(), RecordTimer()
        found = [is_ended(LATE, lambda: is_ended(SOON, loop, second), first)]
        found.append(is_ended(LATE, lambda: None, first))
        return [*found, is_ended(SOON, loop, first)]

    assert run(ended) == [False, False, True]


def test_many_timers_share_one_watcher(watcher: Callable[[], list[threading.Thread]]) -> None:
    timers = [RecordTimer() for _ in range(20)]
    for timer in timers:
        timer.start(LATE)
    assert len(watcher()) == 1
    assert is_ended(SOON, sleep)
    for timer in timers:
        timer.stop()


def test_threads_are_interrupted_side_by_side() -> None:
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(is_ended(SOON, loop))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    found.append(is_ended(SOON, sleep))
    for thread in threads:
        thread.join()
    assert found == [True] * 5


# --- stop --------------------------------------------------------------------------------


def test_nothing_comes_after_stop(run: Run) -> None:
    usual_seconds = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # The watcher gets the GIL amid a record of 0.1 ms, and amid stop.
    try:
        assert run(edges) == 0
    finally:
        sys.setswitchinterval(usual_seconds)


def edges() -> int:
    """Stop at the edge of expiry, thousands of times; return how often something came later."""
    timer = RecordTimer()
    ended = in_time = late = 0
    seconds = 100e-6
    earliest, latest = time.monotonic() + 0.5, time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < earliest or min(ended, in_time) < 50:
        assert time.monotonic() < latest, (ended, in_time)
        try:
            if is_ended(seconds, lambda: wait_until(time.monotonic() + 100e-6), timer):
                ended += 1
                seconds *= 1.1  # This is where both happen.
            else:
                in_time += 1
                seconds = max(seconds / 1.1, 1e-6)
            for _ in range(100):
                len("")
        except Overtime:
            late += 1
    return late


def wait_until(deadline: float) -> None:
    while time.monotonic() < deadline:
        pass


def test_an_exception_that_is_set_while_the_timer_is_stopped_is_taken_back() -> None:
    timer = RecordTimer()
    started, go = threading.Event(), threading.Event()

    def work() -> bool:
        timer.start(LATE)
        started.set()
        assert go.wait(PATIENCE_SECONDS)
        timer.stop()
        for _ in range(100):
            len("")
        return True

    def be_the_watcher() -> None:
        assert started.wait(PATIENCE_SECONDS)
        with overtime._watcher._lock:
            timer.raised = True
            go.set()
            wait_for(lambda: timer.deadline == overtime.NEVER)
            overtime._raise_in(timer.thread, Overtime)

    watching = threading.Thread(target=be_the_watcher)
    watching.start()
    assert in_a_thread(work)
    watching.join()
    assert not timer.raised


def test_a_signal_that_comes_late_does_nothing() -> None:
    timer = RecordTimer()
    assert is_ended(SOON, loop, timer)
    signal.raise_signal(signal.SIGURG)
    timer.start(LATE)
    signal.raise_signal(signal.SIGURG)
    timer.stop()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_task_whose_last_record_is_done_when_the_exception_hits_stop_goes_on(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    hits = 0
    really_stop = RecordTimer.stop

    def hit(timer: RecordTimer) -> None:
        nonlocal hits
        hits += 1
        if hits == 1:
            if when == "after":
                really_stop(timer)
            raise Overtime
        really_stop(timer)

    monkeypatch.setattr(RecordTimer, "stop", hit)
    worker = worker_of(lambda value: value)
    assert worker.run(until_caught_up=True).records == 5
    assert worker._takeover._timer.deadline == overtime.NEVER


# --- workers -----------------------------------------------------------------------------


def test_a_worker_names_the_record_that_outlasts_its_transaction(run: Run) -> None:
    def hang_at_three(value: int) -> int:
        if value == 3:
            loop()
        return value

    worker = worker_of(hang_at_three, timeout_seconds=0.2)
    with pytest.raises(RecordTooSlow, match=r"in\[0\]@3 was still being processed"):
        run(lambda: worker.run(until_caught_up=True))


def test_a_worker_leaves_no_thread_behind(watcher: Callable[[], list[threading.Thread]]) -> None:
    seen: list[int] = []

    def look(value: int) -> int:
        seen.append(len(watcher()))
        return value

    worker_of(look).run(until_caught_up=True)
    assert seen == [1] * 5
    assert not watcher()


HANGING = """
from tests.unit.processing.test_overtime import loop, worker_of

def test_that_hangs():
    worker_of(lambda value: loop()).run(until_caught_up=True)
"""


@pytest.mark.timeout(60)
def test_pytest_timeout_ends_a_test_of_a_worker_that_hangs(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_timeout", "--timeout=1", "."],
        cwd=tmp_path,
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert "Failed: Timeout (>1.0s) from pytest-timeout" in found.stdout, found.stdout
    assert "1 failed" in found.stdout, found.stdout


# --- whose signals are whose -------------------------------------------------------------


def test_sigalrm_and_its_timer_are_left_alone() -> None:
    def alarm() -> tuple[Any, bool]:
        return signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0

    before = alarm()
    assert is_ended(SOON, sleep)
    assert not is_ended(LATE, lambda: None)
    assert alarm() == before


def test_an_alarm_fires_while_a_record_runs() -> None:
    class Alarm(Exception):
        pass

    def ring(number: int, frame: Any) -> None:
        raise Alarm

    def work() -> int:
        signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, SOON)
            is_ended(LATE, loop)
        except Alarm:
            return 0 if is_ended(SOON, loop) else 2
        return 1

    assert ChildProcess(work).wait() == 0


def test_an_application_that_handles_sigurg_keeps_it() -> None:
    came: list[int] = []

    def handler(number: int, frame: Any) -> None:
        came.append(number)

    former = signal.signal(signal.SIGURG, handler)
    try:
        assert is_ended(SOON, loop)
        assert signal.getsignal(signal.SIGURG) is handler
    finally:
        signal.signal(signal.SIGURG, former)
    assert not came


# --- the watcher -------------------------------------------------------------------------


def test_slices_of_one_transaction_do_not_wake_the_watcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    woken: list[float] = []
    really_watch = overtime._watcher.watch

    def watch(timer: RecordTimer, deadline: float) -> None:
        woken.append(deadline)
        really_watch(timer, deadline)

    monkeypatch.setattr(overtime._watcher, "watch", watch)
    timer = RecordTimer()
    deadline = time.monotonic() + LATE
    for number in range(1000):
        jitter = 1e-5 * (-1) ** number
        timer.start(deadline - time.monotonic() + jitter)
        timer.stop()
    assert len(woken) == 1


def test_a_timer_that_is_started_while_the_watcher_looks_at_it_is_not_forgotten() -> None:
    timer = StartedMeanwhile()
    timer.start(SOON)
    timer.stop()
    wait_for(lambda: timer.calls_watch is not None)
    assert timer.calls_watch


class StartedMeanwhile(RecordTimer):
    """Is started just when the watcher has read that it is not armed."""

    calls_watch: bool | None = None

    @property
    def deadline(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        found = self.written
        if threading.current_thread().name == "eos-overtime" and found == overtime.NEVER:
            self.written = time.monotonic() + SOON
            self.calls_watch = self.written < self.next_look
            self.written = overtime.NEVER
        return found

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self.written = deadline


def test_the_watcher_ends_by_itself_once_no_timer_is_armed(
    watcher: Callable[[], list[threading.Thread]],
) -> None:
    timer = RecordTimer()
    assert not is_ended(0.2, lambda: None, timer)
    assert len(watcher()) == 1
    wait_for(lambda: not watcher())
    assert is_ended(SOON, sleep, timer), "and another one begins"


def test_close_ends_the_watcher_unless_another_timer_is_armed(
    watcher: Callable[[], list[threading.Thread]],
) -> None:
    one, other = RecordTimer(), RecordTimer()
    one.start(LATE)
    other.start(LATE)
    one.close()
    one.close()
    assert len(watcher()) == 1
    other.close()
    assert not watcher()
    assert is_ended(SOON, sleep, one)


def test_timers_work_again_after_a_fork(run: Run, request: pytest.FixtureRequest) -> None:
    if run is in_a_thread and sys.version_info[:3] == (3, 13, 0):
        why = "in a child that another thread forked, CPython 3.13.0 runs no handler during a loop"
        request.applymarker(pytest.mark.xfail(strict=True, reason=why))
    timer, armed = RecordTimer(), RecordTimer()
    timer.start(LATE)
    timer.stop()
    armed.start(LATE)

    def child() -> int:
        if watchers() or armed.deadline != overtime.NEVER:
            return 1
        # Whichever thread forked is the child's main thread.
        return 0 if is_ended(SOON, loop, timer) and is_ended(SOON, sleep) else 2

    with overtime._watcher._lock:  # As it is when the watcher looks during the fork.
        process = run(lambda: ChildProcess(child))
    code = process.wait()
    armed.stop()
    assert code == 0
    assert is_ended(SOON, loop, timer)
