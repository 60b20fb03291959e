"""A broker that stands still keeps no worker beyond its deadlines, whatever it is doing.

One broker stands still for several workers at once, each of them in another phase of its work.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eosframework.embedded import KafkaCluster, start_kafka
from tests.conftest import SMALL_BROKER
from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until

pytestmark = pytest.mark.slow

RECORDS = 2000
REQUEST_SECONDS, TRANSACTION_SECONDS, STOP_SECONDS = 5, 12, 6
SLACK_SECONDS = 30
"""For a loaded machine; every wait that is not bounded is longer."""

SHORT = [
    f"kafka.request_timeout_seconds={REQUEST_SECONDS}",
    f"worker.transaction_timeout_seconds={TRANSACTION_SECONDS}",
    "worker.session_timeout_seconds=45",
]

PHASES = {
    "takeover.before_init": 1,
    "takeover.after_init": 1,
    "transaction.after_begin": 1,
    "transaction.after_produce": 3,
    "transaction.before_commit": 3,
    "revoke.before_commit": 1,
}
"""Where the workers are held while the broker is stopped, and at which hit. After begin the queue
of the producer fills up. A seventh worker fetches."""


@dataclass
class Scene:
    """The workers, by phase, in front of a broker that stands still."""

    pipelines: dict[str, Pipeline]
    workers: dict[str, WorkerProcess]

    def finish(self) -> None:
        """Let healthy workers read all inputs to their ends."""
        healthy = [p.start_worker(until_caught_up=True) for p in self.pipelines.values()]
        for worker in healthy:
            assert worker.wait() == 0, worker.log[-3000:]

    def verify(self) -> None:
        for phase, pipeline in self.pipelines.items():
            verdict = pipeline.verify()
            assert verdict.clean, (phase, verdict)


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker that its controller does not fence while both stand still.

    It would leave the markers of transactions out that end just then (KAFKA-20734).
    """
    directory = tmp_path_factory.mktemp("standing")
    properties = {**SMALL_BROKER, "broker.session.timeout.ms": "600000"}
    cluster = start_kafka(directory, fast_start=True, properties=properties)
    yield cluster
    cluster.kill()


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    own_kafka: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> Iterator[Scene]:
    """The parameter is the workers' stop deadline."""
    [node] = own_kafka.nodes
    common = [*SHORT, f"worker.stop_deadline_seconds={request.param}"]
    pipelines = {
        phase: Pipeline(own_kafka.bootstrap_servers, unique_name("app"), tmp_path / phase)
        for phase in [*PHASES, "fetch"]
    }
    workers: dict[str, WorkerProcess] = {}

    def start(phase: str, *settings: str) -> None:
        faults = [f"{phase}=hold@{PHASES[phase]}"] if phase in PHASES else []
        pipelines[phase].feed(RECORDS)
        workers[phase] = pipelines[phase].start_worker(settings=[*common, *settings], faults=faults)

    ready = ("fetch", "revoke.before_commit")
    for phase in ready:
        start(phase)
    for phase in ready:
        wait_until(lambda p=pipelines[phase]: p.committed() == RECORDS, f"the commits of {phase}")
    giving_up = pipelines["revoke.before_commit"]
    workers["successor"] = giving_up.start_worker(settings=common, instance="successor")
    start("transaction.after_begin", "kafka.properties.queue.buffering.max.messages=100")
    for phase in pipelines.keys() - workers.keys():
        start(phase)
    for phase in PHASES:
        pipelines[phase].feed_until_fault(workers[phase], phase)
    node.suspend()
    yield Scene(pipelines, workers)
    node.resume()
    for pipeline in pipelines.values():
        pipeline.stop()


@pytest.mark.exhaustive
@pytest.mark.parametrize("scene", [STOP_SECONDS], indirect=True)
def test_sigterm_ends_a_worker_in_every_phase_while_its_broker_stands_still(
    scene: Scene, own_kafka: KafkaCluster
) -> None:
    started = time.monotonic()
    for worker in scene.workers.values():
        worker.release()
        worker.signal(signal.SIGTERM)
    took_seconds: dict[str, float] = {}

    def all_ended() -> bool:
        for phase, worker in scene.workers.items():
            if worker.process.poll() is not None:
                took_seconds.setdefault(phase, round(time.monotonic() - started, 1))
        return len(took_seconds) == len(scene.workers)

    wait_until(all_ended, f"the end of every worker; ended: {took_seconds}")
    print(took_seconds)
    assert max(took_seconds.values()) < STOP_SECONDS + SLACK_SECONDS, took_seconds
    for phase, worker in scene.workers.items():
        code = worker.process.returncode
        stuck = "did not end within worker.stop_deadline_seconds" in worker.log
        assert code == (1 if stuck else 0), (phase, code, worker.log[-2000:])
        assert "Traceback" not in worker.log, worker.log[-3000:]
    own_kafka.nodes[0].resume()
    scene.finish()
    scene.verify()


@pytest.mark.parametrize("scene", [60], indirect=True)
def test_a_worker_in_every_phase_notices_and_goes_on_when_its_broker_does(
    scene: Scene, own_kafka: KafkaCluster
) -> None:
    started = time.monotonic()
    for worker in scene.workers.values():
        worker.release()
    noticing = {
        "takeover.before_init": "takeover_retried",
        "takeover.after_init": "takeover_retried",
        "transaction.after_begin": "transaction_aborted",
        "transaction.after_produce": "outcome_unknown",
        "transaction.before_commit": "outcome_unknown",
    }
    took_seconds: dict[str, float] = {}

    def all_noticed() -> bool:
        for phase, event in noticing.items():
            worker = scene.workers[phase]
            others = ("outcome_unknown", "transaction_aborted", "recycle_failed")
            if any(worker.events(name) for name in (event, *others)):
                took_seconds.setdefault(phase, round(time.monotonic() - started, 1))
        return len(took_seconds) == len(noticing)

    wait_until(all_noticed, f"an event of every worker; noticed: {took_seconds}")
    print(took_seconds)
    # A round of commits may be followed by a round of replaced producers.
    longest = 2 * TRANSACTION_SECONDS + REQUEST_SECONDS + SLACK_SECONDS
    assert max(took_seconds.values()) < longest, took_seconds
    own_kafka.nodes[0].resume()
    for phase, worker in scene.workers.items():
        pipeline = scene.pipelines.get(phase, scene.pipelines["revoke.before_commit"])
        wait_until(lambda p=pipeline: p.committed() == p.fed, f"all records in {phase}")
        worker.signal(signal.SIGTERM)
    for phase, worker in scene.workers.items():
        assert worker.wait() == 0, (phase, worker.log[-3000:])
    scene.verify()
