"""A commit in flight when its partition moves, and an id that another program uses."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from eosframework.config import KafkaSettings
from eosframework.kafka.inspect.coordinators import describe_transaction
from eosframework.kafka.inspect.wire import Wire
from tests.conftest import SMALL_BROKER
from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.faults.proxied import ProxiedCluster, proxied_kafka
from tests.support.faults.proxy import END_TXN

RECORDS = 400
TOGETHER = "worker.commit_interval_seconds=2"
"""What is fed just after a commit is in one round: one whose commit is held would keep the next."""

SHORT_SESSION = ["worker.session_timeout_seconds=6"]
SHORT = [*SHORT_SESSION, "worker.heartbeat_interval_seconds=0.5"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedCluster]:
    directory = tmp_path_factory.mktemp("proxied")
    with proxied_kafka(directory, nodes=1, properties=SMALL_BROKER) as proxied:
        yield proxied


@pytest.fixture
def behind_proxy(
    cluster: ProxiedCluster, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Pipeline]:
    pipeline = Pipeline(cluster.direct, unique_name("app"), tmp_path / "pipeline", partitions=2)
    yield pipeline
    cluster.holds.clear()
    pipeline.stop()


@pytest.mark.parametrize(
    "arrives",
    ["before_the_successor", pytest.param("after_the_successor", marks=pytest.mark.exhaustive)],
)
def test_a_commit_in_flight_while_its_partition_moves_counts_once_or_not_at_all(
    cluster: ProxiedCluster, behind_proxy: Pipeline, arrives: str
) -> None:
    """The worker stands still while its commits are on their way, until its session is over."""
    pipeline = behind_proxy
    pipeline.feed(RECORDS)
    settings = [
        f"kafka.bootstrap_servers={cluster.bootstrap_servers}",
        "worker.transaction_timeout_seconds=300",
        *(TOGETHER, *SHORT),
    ]
    first = pipeline.start_worker(instance="one", settings=settings)
    wait_until(lambda: pipeline.committed() == RECORDS, "a first batch")
    commits = [cluster.hold(END_TXN, id_.encode(), repeated=True) for id_ in first.ids()]
    pipeline.feed(RECORDS)
    for commit in commits:
        commit.wait()
    first.signal(signal.SIGSTOP)
    if arrives == "before_the_successor":
        assert not any(commit.deliver() for commit in commits)
    successor = pipeline.start_worker(instance="two", settings=SHORT)
    successor.wait_for_event("task_assigned", 2)
    wait_until(lambda: pipeline.committed() == 2 * RECORDS, "the successor's commits")
    if arrives == "after_the_successor":
        refused = [commit.deliver() for commit in commits]
        assert all(refused), "a commit of the former owner was accepted"
    cluster.holds.clear()
    first.signal(signal.SIGCONT)
    wait_until(
        lambda: bool(first.events("partitions_lost")) or first.process.poll() is not None,
        "the former owner's letting go",
    )
    assert not first.events("transaction_expired")
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == 3 * RECORDS, "the rest")
    for worker in (first, successor):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
    verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
def test_a_commit_in_flight_when_a_second_worker_joins_is_decided_before_the_partition_moves(
    cluster: ProxiedCluster, behind_proxy: Pipeline
) -> None:
    pipeline = behind_proxy
    pipeline.feed(RECORDS)
    settings = ["worker.transaction_timeout_seconds=8", *SHORT]
    behind = f"kafka.bootstrap_servers={cluster.bootstrap_servers}"
    first = pipeline.start_worker(instance="one", settings=[behind, *settings])
    wait_until(lambda: pipeline.committed() == RECORDS, "a first batch")
    commit = cluster.hold(END_TXN, first.ids()[-1].encode(), repeated=True)
    pipeline.feed(RECORDS)
    commit.wait()
    second = pipeline.start_worker(instance="two", settings=settings)
    first.wait_for_event("partitions_revoked", 2)
    assert first.events("outcome_unknown"), first.log[-3000:]
    second.wait_for_event("task_assigned")
    assert commit.deliver(), "a commit of the former epoch was accepted"
    commit.let_repetitions_pass()
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == 3 * RECORDS, "the rest")
    for worker in (first, second):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_worker_whose_id_another_program_uses_does_not_fence_it_for_ever(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    """The program claims nothing, so no successor explains the fences."""
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(RECORDS)
    # Fences are counted within thirty heartbeats, and a machine that is slow makes them rare.
    worker = pipeline.start_worker(instance="one", settings=SHORT_SESSION)
    wait_until(lambda: pipeline.committed() == RECORDS, "a first batch")
    [id_] = set(worker.ids())
    before = epoch(pipeline, id_)
    stranger = {"bootstrap.servers": pipeline.bootstrap_servers, "transactional.id": id_}
    inits = 0

    def is_over(event: str) -> bool:
        return worker.process.poll() is not None or len(worker.events(event)) >= inits

    while worker.process.poll() is None:
        Producer(stranger).init_transactions(30)
        inits += 1
        pipeline.feed(1)
        wait_until(lambda: is_over("task_fenced"), "a fence")
        wait_until(lambda: is_over("task_recovered"), "its recovery")
    assert worker.wait() == 3, worker.log[-3000:]
    assert "another process uses the same application name" in worker.log
    fences = len(worker.events("task_fenced"))
    assert fences <= 6
    assert epoch(pipeline, id_) - before <= 2 * (fences + 1) + inits, "each fence has one init"
    last = pipeline.start_worker(instance="one", settings=SHORT_SESSION)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the rest")
    last.signal(signal.SIGTERM)
    assert last.wait() == 0
    assert pipeline.verify().clean


def epoch(pipeline: Pipeline, id_: str) -> int:
    """The producer epoch of an id: each init raises it."""
    with Wire(KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)) as wire:
        return describe_transaction(wire, id_).producer_epoch
