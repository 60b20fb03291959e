"""The end of recorded ownership: suspended workers are fenced, and others start without entries."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from eosframework import failpoints
from eosframework.application.control_topic import ControlTopic
from eosframework.config import Ids, KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.txnid import ownership_topic
from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.processes.commands import here
from tests.support.processes.programs import Finished

RECORDS = 1000
PARTITIONS = 4
EACH = "worker.producers=partition"
SETTINGS = (
    "worker.producers=auto",
    "worker.session_timeout_seconds=6",
    "worker.batch_records=100",
    "worker.transaction_timeout_seconds=300",
)
NAMED = "`eosframework ids stop-recording` was run after this worker had started"


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    made = make_pipeline(partitions=PARTITIONS)
    made.feed(RECORDS)
    return made


def started(pipeline: Pipeline, instance: str, *settings: str, **more: Any) -> WorkerProcess:
    return pipeline.start_worker(instance=instance, settings=[*SETTINGS, *settings], **more)


def command(pipeline: Pipeline, *words: str) -> Finished:
    server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    return here(*words, str(pipeline.topology_file), "--set", server)


def stop_recording(pipeline: Pipeline) -> Finished:
    return command(pipeline, "ids", "stop-recording")


def stopped(pipeline: Pipeline) -> None:
    """End the recording once the session of the last member is over."""

    def done() -> bool:
        ended = stop_recording(pipeline)
        assert ended.exit_code == 0 or "has 1 members" in ended.error, ended.err
        return ended.exit_code == 0

    wait_until(done, "the end of the session")


def entries(pipeline: Pipeline) -> dict[str, Any]:
    settings = KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers)
    return {**ControlTopic(pipeline.name, settings, ClusterAdmin(settings)).refresh().entries}


def recorded_in(pipeline: Pipeline) -> bool:
    admin = ClusterAdmin(KafkaSettings(bootstrap_servers=pipeline.bootstrap_servers))
    topic = ownership_topic(pipeline.name)
    return admin.describe_topics([topic])[topic].exists


def nothing_is_recorded(pipeline: Pipeline) -> None:
    """Versions of before find what they know: a source of ids, and no request to record."""
    found = entries(pipeline)
    assert Ids(found["ids"]["from"]) is Ids.DERIVED
    assert "ownership" not in found
    assert not recorded_in(pipeline)


def end(*workers: WorkerProcess) -> None:
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-4000:]


def fed_and_committed(pipeline: Pipeline) -> None:
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "all commits")


def woken_to_its_end(zombie: WorkerProcess) -> None:
    zombie.signal(signal.SIGCONT)
    assert zombie.wait() != 0
    assert NAMED in zombie.log or "was deleted or made anew while this worker ran" in zombie.log


@pytest.mark.parametrize("is_woken_amid", [pytest.param(False, marks=pytest.mark.exhaustive), True])
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("ownership.before_entry", marks=pytest.mark.exhaustive),
        pytest.param("ownership.after_entry", marks=pytest.mark.exhaustive),
        pytest.param("ownership.after_read", marks=pytest.mark.exhaustive),
        "transaction.before_commit",
    ],
)
def test_a_worker_that_sleeps_while_recording_ends_writes_nothing_beside_static_ids(
    pipeline: Pipeline, point: str, is_woken_amid: bool
) -> None:
    """It wakes beside its successor, or before the ownership topic is deleted."""
    zombie = started(pipeline, "one", faults=[f"{point}=stop@1"])
    zombie.wait_for_fault(point)
    assert recorded_in(pipeline)
    refused = stop_recording(pipeline)
    assert refused.exit_code == 2
    assert f"group '{pipeline.name}' has 1 members" in refused.error
    if is_woken_amid:
        failpoints.arm("stop_recording.after_fence", lambda _: woken_to_its_end(zombie))
    try:
        stopped(pipeline)
    finally:
        failpoints.disarm("stop_recording.after_fence")
    nothing_is_recorded(pipeline)

    successor = started(pipeline, "two", EACH)
    wait_until(lambda: pipeline.committed() == RECORDS, "the successor's commit")
    assert not any(":worker." in id_ for id_ in successor.ids())
    if not is_woken_amid:
        woken_to_its_end(zombie)
    fed_and_committed(pipeline)
    end(successor)
    nothing_is_recorded(pipeline)
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_an_end_of_recording_that_was_interrupted_is_finished_before_anything_starts(
    pipeline: Pipeline,
) -> None:
    worker = started(pipeline, "one")
    wait_until(lambda: pipeline.committed() == RECORDS, "all commits")
    end(worker)
    points = [f"stop_recording.after_{step}" for step in ("mark", "fence", "topic")]
    for point in points:
        reached: list[str] = []

        def press(name: str, reached: list[str] = reached) -> None:
            reached.append(name)
            raise KeyboardInterrupt

        failpoints.arm(point, press)
        try:
            done = stop_recording(pipeline)
        finally:
            failpoints.disarm(point)
        assert (reached, done.exit_code) == ([point], 130), done.err
        for words in (("run-worker",), ("apply",)):
            refused = command(pipeline, *words)
            assert refused.exit_code == 2
            assert "finish it: eosframework ids stop-recording APP" in refused.error
    assert stop_recording(pipeline).exit_code == 0
    nothing_is_recorded(pipeline)
    again = stop_recording(pipeline)
    assert (again.exit_code, again.out) == (0, "no ids are recorded; nothing was done\n")

    each = started(pipeline, "one", EACH)
    fed_and_committed(pipeline)
    end(each)
    own = started(pipeline, "one")
    fed_and_committed(pipeline)
    assert own.ids() == [f"{pipeline.name}:worker.{pipeline.name}.one:0"]
    end(own)
    verdict = pipeline.verify()
    assert verdict.clean, verdict
