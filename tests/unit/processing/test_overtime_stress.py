"""Deadlines that pass at random moments of real tasks: in records, between them, and at their end.

Each interruption names the record that was running, or the last one that was run; none leaves the
task's method, and none follows it.
"""

from __future__ import annotations

import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eosframework.errors import RecordTooSlow, TransactionTooLong
from eosframework.processing.task import TIMEOUT_SHARE, Task
from eosframework.processing.transaction.overtime import NEVER, Overtime, end_idle_watcher
from eosframework.records import TopicPartition
from tests.unit.processing.messages import Sent
from tests.unit.processing.test_overtime import in_a_thread, worker_of

RECORDS = 100_000
SLICE = 50
SECONDS = 10.0
LIMIT_SECONDS = 6 * SECONDS
"""On a machine that others use too."""

SPINS_SECONDS = (0.0, 0.0, 0.0, 0.0, 20e-6, 60e-6)


@pytest.fixture(autouse=True)
def switches() -> Iterator[None]:
    """Let the watcher get the GIL amid a record, and amid the end of a run."""
    usual_seconds = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual_seconds)
    end_idle_watcher()


class Stress:
    """Runs slices of records through a task with random deadlines.

    Args:
        seed: of the deadlines and the times that records take.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.begun: list[int] = []
        self.interrupted = self.in_time = 0
        self.wrong: list[str] = []

    def take(self, value: int) -> int:
        """Process a record, in a time that is drawn."""
        self.begun.append(value)
        until = time.monotonic() + self.draw.choice(SPINS_SECONDS)
        while time.monotonic() < until:
            pass
        return value

    def run(self) -> None:
        worker = worker_of(self.take)
        worker.start()
        while not worker.tasks:
            worker.turn()
        (task,) = worker.tasks.values()
        for first in range(0, RECORDS, SLICE):
            self.run_slice(task, first)

    def run_slice(self, task: Task, first: int) -> None:
        (partition,) = task.partitions
        messages = [Sent(b"%d" % n, n) for n in range(first, first + SLICE)]
        seconds = self.draw.uniform(1e-6, 1.2e-3)
        task.transaction_timeout_seconds = seconds / TIMEOUT_SHARE
        self.begun.clear()
        began = time.monotonic()
        try:
            try:
                task._run_records(TopicPartition(*partition), messages)
                self.in_time += 1
                if len(self.begun) != SLICE:
                    self.wrong.append(f"{first}: {len(self.begun)} of {SLICE} records were run")
            except (RecordTooSlow, TransactionTooLong) as error:
                self.interrupted += 1
                self.judge(str(error), first, time.monotonic() - began >= seconds)
            for _ in range(50):
                len("")
        except Overtime as leaked:
            self.wrong.append(f"{first}: leaked from {places(leaked)}")
            task._stop_timer()
        if task._timer.deadline != NEVER:
            self.wrong.append(f"{first}: the timer is armed")
        task._bisection = None
        task._out.clear()

    def judge(self, text: str, first: int, is_over: bool) -> None:
        named = re.search(r"@(\d+) was still", text)
        last = self.begun[-1] if self.begun else first
        # The deadline may pass after a record, before the next one has called its function.
        if named is None or int(named[1]) not in (last, last + 1):
            self.wrong.append(f"{first}: {last} was running: {text[:80]}")
        if not is_over:
            self.wrong.append(f"{first}: before its deadline")


def places(error: BaseException) -> str:
    trace, found = error.__traceback__, list[str]()
    while trace is not None:
        found.append(f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(found)


@pytest.mark.parametrize(
    ("seed", "call"), [(1, lambda f: f()), (2, in_a_thread)], ids=["main thread", "another thread"]
)
def test_an_interruption_at_any_moment_belongs_to_the_record_that_overran(
    seed: int, call: Callable[[Callable[[], Any]], Any]
) -> None:
    stress, began = Stress(seed), time.monotonic()
    call(stress.run)
    assert stress.wrong == []
    assert min(stress.interrupted, stress.in_time) > 50, (stress.interrupted, stress.in_time)
    assert time.monotonic() - began < LIMIT_SECONDS
    assert not [t for t in threading.enumerate() if t.name == "MainThread" and not t.is_alive()]
