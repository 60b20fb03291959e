"""Calls whose answer never comes are resolved by what the brokers have committed, never guessed.

Each producer of one worker suffers another fault, so that one wait for the timeouts serves them
all. Where all partitions share one producer, it suffers one fault after the other.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eosframework.embedded.jars import KAFKA_VERSION
from tests.conftest import SMALL_BROKER
from tests.support.applications.pipeline import Pipeline, WorkerProcess, number_in, wait_until
from tests.support.faults.proxied import ProxiedCluster, proxied_kafka
from tests.support.faults.proxy import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    HeldRequest,
)
from tests.support.servers.kafka_versions import OLDEST_ACCEPTED

BATCH = 600
SHORT = [
    "kafka.request_timeout_seconds=5",
    "worker.transaction_timeout_seconds=12",
    "worker.heartbeat_interval_seconds=0.5",
    "worker.commit_interval_seconds=1",  # so that what is fed just after a commit is in one round
]

KEYS = (ADD_PARTITIONS, PRODUCE, ADD_OFFSETS, TXN_OFFSET_COMMIT, END_TXN)
"""Held in producers 0 to 4."""

COMMITTING = KEYS.index(END_TXN)

RECYCLING = 5
"""The producer that is suspect after a commit, and whose init is held."""

PRODUCERS = RECYCLING + 1

NOT_READY = {"COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"}
"""Of a broker that has just made its internal topics, or still ends the transaction before."""

INFLATED = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:inflate"}]
    on_error: {dead_letter: NAME.dead}
    to: [{topic: NAME.doubled, value: json}]
"""
"""Record 13 is too large for its topic."""


@dataclass
class Scene:
    """A worker behind a proxy that has committed a first batch, with a fault in each producer.

    Args:
        ids: of its producers.
    """

    cluster: ProxiedCluster
    pipeline: Pipeline
    worker: WorkerProcess
    ids: list[str]

    def hold(self, api_key: int, producer: int, *, repeated: bool = True) -> HeldRequest:
        # An entry of the ownership topic has the id as well; in a transaction acks=-1 follows it.
        acks = b"\xff\xff" if api_key == PRODUCE else b""
        return self.cluster.hold(api_key, self.ids[producer].encode() + acks, repeated=repeated)

    def events(self, name: str, producer: int) -> list[dict[str, object]]:
        id_ = self.ids[producer]
        return [e for e in self.worker.events(name) if e["transactional_id"] == id_]

    def outcomes(self, producer: int) -> list[object]:
        return [event["outcome"] for event in self.events("outcome_resolved", producer)]

    def failures(self, producer: int) -> int:
        names = ("outcome_unknown", "transaction_aborted", "task_fenced")
        return sum(len(self.events(name, producer)) for name in names)

    def finish(self) -> None:
        """See the worker go on, end well, and leave exactly what it should."""
        self.pipeline.feed(BATCH)
        wait_until(lambda: self.pipeline.committed() == self.pipeline.fed, "all records")
        self.worker.signal(signal.SIGTERM)
        assert self.worker.wait() == 0, self.worker.log[-3000:]
        assert self.pipeline.nothing_is_open()
        verdict = self.pipeline.verify()
        assert verdict.clean, verdict


@pytest.fixture(
    scope="module",
    params=[KAFKA_VERSION, pytest.param(OLDEST_ACCEPTED, marks=pytest.mark.exhaustive)],
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxiedCluster]:
    directory = tmp_path_factory.mktemp("proxied")
    version: str = request.param
    with proxied_kafka(directory, nodes=1, properties=SMALL_BROKER, version=version) as proxied:
        yield proxied


@pytest.fixture
def producers() -> str:
    """Of the worker: `worker.ids`."""
    return "partition"


@pytest.fixture
def scene(
    cluster: ProxiedCluster, unique_name: Callable[[str], str], tmp_path: Path, producers: str
) -> Iterator[Scene]:
    name = unique_name("app")
    pipeline = Pipeline(cluster.direct, name, tmp_path / "pipeline", partitions=PRODUCERS)
    pipeline.feed(BATCH)
    settings = [
        f"kafka.bootstrap_servers={cluster.bootstrap_servers}",
        f"worker.ids={producers}",
    ]
    worker = pipeline.start_worker(instance="one", settings=[*settings, *SHORT])
    wait_until(lambda: pipeline.committed() == BATCH, "a first batch")
    own_id = [f"{name}:worker.{name}.one:0"]
    each = [f"{name}:doubled:{partition}" for partition in range(PRODUCERS)]
    yield Scene(cluster, pipeline, worker, own_id if producers == "worker" else each)
    cluster.holds.clear()
    pipeline.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    ["request_comes_late", pytest.param("response_is_lost", marks=pytest.mark.exhaustive)],
)
def test_a_call_without_an_answer_is_resolved_by_what_is_committed(
    scene: Scene, answer: str
) -> None:
    held = {producer: scene.hold(key, producer) for producer, key in enumerate(KEYS)}
    scene.hold(END_TXN, RECYCLING, repeated=False)
    held[RECYCLING] = scene.hold(INIT_PRODUCER_ID, RECYCLING)
    scene.pipeline.feed(BATCH)
    refused: dict[int, frozenset[str]] = {}

    def deliver_what_came() -> bool:
        for producer, request in held.items():
            if request.came and producer not in refused:
                refused[producer] = request.deliver()
        return len(refused) == len(held)

    if answer == "response_is_lost":
        wait_until(deliver_what_came, "a request of each producer")
        # A broker that has just made its internal topics may still be loading one of them.
        answers = [why for why in refused.values() if why != {"COORDINATOR_LOAD_IN_PROGRESS"}]
        assert len(answers) > len(refused) / 2
        assert not any(answers), refused
    wait_until(lambda: bool(scene.events("recycle_failed", RECYCLING)), "a failed recycle")
    # Its tasks begin again, and find it still suspect.
    scene.pipeline.feed(scene.pipeline.partitions)
    wait_until(lambda: all(map(scene.failures, held)), "each producer's failure")
    scene.cluster.holds.clear()
    wait_until(
        lambda: all(scene.events("task_recovered", producer) for producer in held),
        "each producer's recovery",
    )
    if answer == "request_comes_late":
        wait_until(deliver_what_came, "the late requests' arrival")
        # Where the next transaction is open, a late init ends that first.
        assert refused.pop(RECYCLING) <= {"CONCURRENT_TRANSACTIONS"}
        assert all(refused.values()), refused
    scene.finish()
    assert not scene.worker.events("output_rejected"), "no record is to blame for its broker"
    committed = {producer for producer in held if "committed" in scene.outcomes(producer)}
    assert committed == ({COMMITTING} if answer == "response_is_lost" else set())
    assert "not_committed" in scene.outcomes(KEYS.index(ADD_OFFSETS))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("producers", ["worker"])
@pytest.mark.parametrize(
    "answer",
    [pytest.param("request_comes_late", marks=pytest.mark.exhaustive), "response_is_lost"],
)
def test_a_call_for_all_partitions_without_an_answer_is_resolved_by_what_is_committed(
    scene: Scene, answer: str
) -> None:
    outcomes = {key: unanswered(scene, key, answer) for key in KEYS}
    scene.finish()
    assert not scene.worker.events("output_rejected"), "no record is to blame for its broker"
    committed = {key for key, seen in outcomes.items() if "committed" in seen}
    assert committed == ({END_TXN} if answer == "response_is_lost" else set())
    assert "not_committed" in outcomes[ADD_OFFSETS]


def unanswered(scene: Scene, key: int, answer: str) -> list[object]:
    """Let one call of the only producer have no answer, and return the outcomes that were found."""
    failed, resolved = scene.failures(0), len(scene.outcomes(0))
    recovered = len(scene.events("task_recovered", 0))
    held = scene.hold(key, 0)
    scene.pipeline.feed(BATCH)
    held.wait()
    if answer == "response_is_lost":
        assert not delivered_at_last(held)
    wait_until(lambda: scene.failures(0) > failed, "the producer's failure")
    scene.cluster.holds.clear()
    wait_until(lambda: len(scene.events("task_recovered", 0)) > recovered, "its recovery")
    if answer == "request_comes_late":
        assert held.deliver(), "a request of the former epoch was accepted"
    wait_until(lambda: scene.pipeline.committed() == scene.pipeline.fed, "all records")
    return scene.outcomes(0)[resolved:]


def delivered_at_last(held: HeldRequest) -> frozenset[str]:
    """Deliver a request as a client does: again while the broker is not ready for it."""
    answers: list[frozenset[str]] = []

    def is_answered() -> bool:
        answers.append(held.deliver())
        return not answers[-1] & NOT_READY

    wait_until(is_answered, "a coordinator that is ready")
    return answers[-1]


@pytest.mark.parametrize(
    ("answer", "producers"),
    [
        ("request_comes_late", "partition"),
        pytest.param("response_is_lost", "worker", marks=pytest.mark.exhaustive),
        pytest.param("request_comes_late", "worker", marks=pytest.mark.exhaustive),
        pytest.param("response_is_lost", "partition", marks=pytest.mark.exhaustive),
    ],
)
def test_an_abort_without_an_answer_leaves_nothing_visible(
    cluster: ProxiedCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    answer: str,
    producers: str,
) -> None:
    name = unique_name("app")
    pipeline = Pipeline(
        cluster.direct,
        name,
        tmp_path / "pipeline",
        topology=INFLATED,
        partitions=1,
        small_outputs=True,
    )
    id_ = {"partition": f"{name}:doubled:0", "worker": f"{name}:worker.{name}.one:0"}[producers]
    abort = cluster.hold(END_TXN, id_.encode(), repeated=True)
    pipeline.feed(100)
    try:
        settings = [f"kafka.bootstrap_servers={cluster.bootstrap_servers}", *SHORT]
        settings.append(f"worker.ids={producers}")
        worker = pipeline.start_worker(instance="one", settings=settings)
        abort.wait()
        if answer == "response_is_lost":
            assert not abort.deliver()
        worker.wait_for_event("task_recovered")
        if answer == "request_comes_late":
            assert abort.deliver(), "an abort of the former epoch was accepted"
        cluster.holds.clear()
        wait_until(lambda: pipeline.committed() == 100, "all records")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
    finally:
        cluster.holds.clear()
        pipeline.stop()
    assert worker.events("output_rejected")
    numbers = [number_in(message) for message in pipeline.read(f"{name}.doubled")]
    assert sorted(numbers) == [n for n in range(100) if n != 13]
    assert [number_in(message) for message in pipeline.read(f"{name}.dead")] == [13]
