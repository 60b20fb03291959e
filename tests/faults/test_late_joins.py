"""A worker's own request to join its group that arrives after its repetition was answered."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import SMALL_BROKER
from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.faults.proxied import ProxiedCluster, proxied_kafka
from tests.support.faults.proxy import JOIN_GROUP

RECORDS = 400
LONG_SESSION = "worker.session_timeout_seconds=300"
"""No partition comes back because a member was silent."""


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedCluster]:
    directory = tmp_path_factory.mktemp("late_joins")
    with proxied_kafka(directory, nodes=1, properties=SMALL_BROKER) as cluster:
        yield cluster


@pytest.fixture
def pipeline(
    proxied: ProxiedCluster, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Pipeline]:
    name = unique_name("late")
    pipeline = Pipeline(proxied.direct, name, tmp_path / name)
    yield pipeline
    pipeline.stop()


@pytest.mark.parametrize(
    ("arguments", "instance"),
    [(("--processes", "2"), "one.1"), pytest.param((), "one", marks=pytest.mark.exhaustive)],
    ids=["supervised", "alone"],
)
def test_a_worker_that_its_own_late_join_fences_starts_again(
    proxied: ProxiedCluster, pipeline: Pipeline, arguments: tuple[str, ...], instance: str
) -> None:
    pipeline.feed(RECORDS)
    name = f"{pipeline.name}.{instance}"
    late = proxied.hold(JOIN_GROUP, name.encode())
    servers = f"kafka.bootstrap_servers={proxied.bootstrap_servers}"
    worker = pipeline.start_worker(*arguments, instance="one", settings=[servers, LONG_SESSION])
    late.wait()
    # Its repetition has been answered then. Of two joins under way the broker fences the first.
    worker.wait_for(
        lambda: name in {event.get("instance", name) for event in worker.events("task_assigned")},
        f"tasks of {name}",
    )
    wait_until(lambda: pipeline.committed() == RECORDS, "the first records")
    assert late.deliver() == frozenset()
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == 2 * RECORDS, "the records after the fence")
    assert len(worker.events("worker_fenced")) == 1, "the fault did not happen"
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
def test_a_supervisor_with_a_rival_of_the_same_name_ends(
    proxied: ProxiedCluster, pipeline: Pipeline
) -> None:
    """The rival is on another host: on one host a lock refuses it."""
    pipeline.feed(RECORDS)
    arguments = ("--processes", "2")
    first = pipeline.start_worker(*arguments, instance="one")
    first.wait_for_event("task_assigned", 4)
    elsewhere = {"XDG_STATE_HOME": str(pipeline.directory / "other_host")}
    second = pipeline.start_worker(*arguments, instance="one", environment=elsewhere)
    rivals = (first, second)
    wait_until(lambda: any(r.process.poll() is not None for r in rivals), "the end of one")
    ended, other = rivals if first.process.poll() is not None else rivals[::-1]
    assert ended.wait() == 3, ended.log[-3000:]
    assert any(rival.events("worker_fenced") for rival in rivals)
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == 2 * RECORDS, "all records")
    other.signal(signal.SIGTERM)
    assert other.wait() == 0, other.log[-3000:]
    verdict = pipeline.verify()
    assert verdict.clean, verdict
