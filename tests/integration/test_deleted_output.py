"""An output topic that is deleted under a running worker, which says so and waits for it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka.admin import AdminClient

from eosframework.application.topic_watch import CONFIRM_SECONDS, LOOK_SECONDS
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from tests.support.applications.pipeline import KEEP, Pipeline, number_in
from tests.support.processes.commands import here
from tests.support.processes.waiting import wait_until
from tests.support.servers.topics import configure

BEFORE, MEANWHILE = 40, 20

A_LOOK = LOOK_SECONDS + CONFIRM_SECONDS + 1


@pytest.mark.parametrize("pause_seconds", [0.0, pytest.param(A_LOOK, marks=pytest.mark.exhaustive)])
def test_a_deleted_output_is_named_and_once_it_is_back_everything_is_processed_exactly_once(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch, pause_seconds: float
) -> None:
    """The worker looks at the topics while `apply` has created this one, and not yet recorded."""
    pipeline = make_pipeline(partitions=2)
    deleted, kept = pipeline.outputs
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    pipeline.feed(BEFORE)
    worker = pipeline.start_worker(
        settings=["worker.transaction_timeout_seconds=5", "kafka.request_timeout_seconds=3"]
    )
    wait_until(lambda: pipeline.committed() == BEFORE, "the first records")
    admin.delete_topics([deleted])[deleted].result(60)
    pipeline.feed(MEANWHILE)
    worker.wait_for_event("output_topic_missing")
    [told] = worker.events("output_topic_missing")
    assert (told["topic"], told["level"]) == (deleted, "warning")
    assert f"eosframework apply APP --accept {deleted}" in str(told["fix"])
    assert pipeline.committed() == BEFORE

    create, created = ClusterAdmin.create_topics, list[str]()

    def create_slowly(admin: ClusterAdmin, topics: Sequence[TopicToCreate]) -> list[str]:
        created.extend(create(admin, topics))
        time.sleep(pause_seconds)
        return created

    monkeypatch.setattr(ClusterAdmin, "create_topics", create_slowly)
    applied = here(
        "apply",
        str(pipeline.topology_file),
        "--accept",
        deleted,
        "--set",
        f"kafka.bootstrap_servers={pipeline.bootstrap_servers}",
    )
    assert applied.exit_code == 0, applied.err
    assert created == [deleted]
    configure(admin, deleted, KEEP)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "all records")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    assert sorted(number_in(m) for m in pipeline.read(deleted)) == [
        2 * n for n in range(BEFORE, BEFORE + MEANWHILE)
    ]
    assert sorted(number_in(m) for m in pipeline.read(kept)) == [
        3 * n for n in range(BEFORE + MEANWHILE)
    ]
