"""A broker and a worker fail together, so a worker starts while requests have no answer."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from tests.support.applications.load import Feeder
from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.servers.three_brokers import Failure, ThreeBrokers

CHILDREN = 2

SHORT = ["kafka.request_timeout_seconds=4", "kafka.start_timeout_seconds=120"]
"""A failed request takes less than the brokers need to replace one of them, which is 9 s."""

ROUNDS = 12

Replicated = Callable[..., Pipeline]


@pytest.mark.slow
def test_workers_start_and_their_siblings_run_on_while_a_killed_broker_is_replaced(
    brokers: ThreeBrokers, replicated: Replicated
) -> None:
    """The broker coordinates the group, which each start asks for its members."""
    pipeline = replicated()
    supervised = Supervised(pipeline)
    with Feeder(pipeline):
        wait_until(lambda: pipeline.committed() > 200, "commits")
        victim = brokers.group_coordinator(pipeline.name)
        brokers.fail(victim, Failure.KILLED)
        supervised.kill(0)
        alone = pipeline.start_worker(instance="alone", settings=SHORT)
        supervised.wait_until_restarted()
        alone.wait_for_event("start_waits_for_brokers")
        alone.wait_for_event("task_assigned")
        before = pipeline.committed()
        wait_until(lambda: pipeline.committed() > before + 200, "commits")
    # The killed child waits too, unless its start is so slow that a broker was replaced before.
    waits = supervised.worker.events("start_waits_for_brokers")
    assert [wait["limit_seconds"] for wait in waits] in ([], [None]), "one a minute, no limit"
    supervised.ends_well(0)
    alone.signal(signal.SIGTERM)
    assert alone.wait() == 0
    brokers.bring_back(victim)
    is_right(pipeline)


@pytest.mark.exhaustive
def test_a_broker_and_a_worker_killed_at_random_end_no_other_worker(
    brokers: ThreeBrokers, replicated: Replicated, seed: int
) -> None:
    chance = random.Random(seed)
    pipeline = replicated()
    supervised = Supervised(pipeline)
    with Feeder(pipeline):
        for _ in range(ROUNDS):
            before = pipeline.committed()
            wait_until(lambda before=before: pipeline.committed() > before + 200, "commits")
            victim, child = chance.randrange(1, 4), chance.randrange(CHILDREN)
            brokers.fail(victim, Failure.KILLED)
            time.sleep(chance.choice([0, 0, chance.uniform(0, 12)]))
            supervised.kill(child)
            supervised.wait_until_restarted()
            brokers.bring_back(victim)
    supervised.ends_well(None)
    is_right(pipeline)


class Supervised:
    """A supervisor with its children."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.worker = pipeline.start_worker("--processes", str(CHILDREN), settings=SHORT)
        self._kills = 0
        self.worker.wait_for_event("task_assigned", pipeline.partitions)
        self._first = self.pids()

    def pids(self) -> list[int]:
        """The newest process of each child."""
        started = {e["instance"]: e["pid"] for e in self.worker.events("worker_started")}
        return [int(str(pid)) for _, pid in sorted(started.items(), key=str)]

    def kill(self, child: int) -> None:
        os.kill(self.pids()[child], signal.SIGKILL)
        self._kills += 1

    def wait_until_restarted(self) -> None:
        """Wait until each process that was killed has a successor that reports its counts."""
        self.worker.wait_for_event("worker_started", CHILDREN + self._kills)
        names = [e["instance"] for e in self.worker.events("worker_started")]
        joined = self.worker.events("task_assigned")
        newest = names[-1]
        count = sum(event.get("instance") == newest for event in joined)
        self.worker.wait_for(
            lambda: (
                sum(e.get("instance") == newest for e in self.worker.events("task_assigned"))
                > count
            ),
            "tasks of the restarted child",
        )

    def ends_well(self, only: int | None) -> None:
        """Stop the supervisor; no child failed, and only one was ever restarted if it is named."""
        if only is not None:
            changed = [a != b for a, b in zip(self._first, self.pids(), strict=True)]
            assert changed == [n == only for n in range(CHILDREN)]
        assert not self.worker.events("worker_failed")
        self.worker.signal(signal.SIGTERM)
        assert self.worker.wait() == 0, self.worker.log[-3000:]


def is_right(pipeline: Pipeline) -> None:
    """Let a healthy worker read the rest, and compare the outputs with the input."""
    pipeline.finish()
    verdict = pipeline.verify()
    assert verdict.clean, verdict
