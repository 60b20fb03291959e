"""Workers are killed and suspended while a topic that a pattern matches is taken up.

Meanwhile the workers of one application know different topics: one has not looked yet, is away
from the group, or stands still.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.applications.patterned import Patterned
from tests.support.applications.pipeline import WorkerProcess, wait_until

IDS = [
    "worker.ids=worker",
    pytest.param("worker.ids=partition", marks=pytest.mark.exhaustive),
]


@pytest.fixture
def pipeline(kafka: Any, unique_name: Any, tmp_path: Path) -> Iterator[Patterned]:
    name = unique_name("app")
    made = Patterned(kafka.bootstrap_servers, name, tmp_path / name)
    made.create("one", 3)
    made.apply()
    yield made
    made.stop()


def start(
    pipeline: Patterned, instance: str, ids: str, faults: tuple[str, ...] = ()
) -> WorkerProcess:
    settings = [ids, "worker.session_timeout_seconds=6", f"state.directory={pipeline.directory}"]
    return pipeline.start_worker(instance=instance, settings=settings, faults=faults)


def all_is_there(pipeline: Patterned) -> None:
    pipeline.wait_until_merged()
    wait_until(lambda: pipeline.findings() == [], "each record once, and each count")


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize(
    "fault",
    [
        "topics.changed=kill@1",
        pytest.param("takeover.after_init=kill@3", marks=pytest.mark.exhaustive),
        pytest.param("transaction.before_commit=kill@5", marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_is_killed_while_it_takes_a_new_topic_up(
    pipeline: Patterned, ids: str, fault: str
) -> None:
    """The other one has the topic, or takes it over; each record has its effect once."""
    victim = start(pipeline, "a", ids, (fault,))
    other = start(pipeline, "b", ids)
    pipeline.send("one", 30)
    all_is_there(pipeline)
    pipeline.create("later", 4)

    def killed() -> bool:
        pipeline.send("later", 4)
        pipeline.send("one", 3)
        return victim.process.poll() is not None

    victim.wait_for(killed, fault)
    pipeline.send("later", 40)
    again = start(pipeline, "a", ids)
    all_is_there(pipeline)
    for worker in (other, again):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
    assert pipeline.findings() == []


@pytest.mark.parametrize("ids", IDS)
def test_a_worker_that_stands_still_comes_back_with_the_topics_of_before(
    pipeline: Patterned, ids: str
) -> None:
    """Its partitions go to the other one, which takes a new topic up; then it looks itself."""
    still, other = start(pipeline, "a", ids), start(pipeline, "b", ids)
    pipeline.send("one", 30)
    all_is_there(pipeline)
    still.signal(signal.SIGSTOP)
    pipeline.create("later", 4)
    pipeline.send("later", 40)
    pipeline.send("one", 30)
    all_is_there(pipeline)
    still.signal(signal.SIGCONT)
    pipeline.send("later", 40)
    pipeline.send("one", 30)
    still.wait_for_event("matched_topics_changed")
    pipeline.send("later", 40)
    all_is_there(pipeline)
    for worker in (still, other):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
    assert pipeline.findings() == []


def test_a_topic_that_a_worker_back_under_its_name_brings_is_assigned(
    pipeline: Patterned,
) -> None:
    """To the coordinator it is the member of before, and the group keeps its assignment.

    The worker sees in two looks that no member has the topic, leaves the group and joins again.
    """
    victim = start(pipeline, "a", "worker.ids=worker")
    pipeline.send("one", 30)
    all_is_there(pipeline)
    victim.signal(signal.SIGKILL)
    victim.wait()
    pipeline.create("later", 2)
    pipeline.send("later", 20)
    back = start(pipeline, "a", "worker.ids=worker")
    all_is_there(pipeline)
    back.signal(signal.SIGTERM)
    assert back.wait() == 0, back.log[-3000:]
