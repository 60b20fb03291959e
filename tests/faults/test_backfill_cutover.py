"""A cutover takes place once and as a whole, whatever is killed and whoever comes meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from eosframework.application.control_topic import ControlTopic
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from tests.conftest import KafkaService
from tests.support.applications.handed_over import JOB, HandedOver
from tests.support.applications.pipeline import wait_until
from tests.support.processes.commands import here
from tests.support.processes.programs import Program

RECORDS = 1050

FEW = 400
"""Read from several partitions in any order, none of them is too late for its window."""

SLOW_TO_EXPIRE = "EOS_WORKER__TRANSACTION_TIMEOUT_SECONDS"


@pytest.fixture
def history(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[HandedOver]:
    name = unique_name("handed")
    made = HandedOver(kafka.bootstrap_servers, name, tmp_path / name)
    yield made
    made.stop()


def test_a_cutover_killed_at_any_step_takes_place_once_and_live_goes_on_with_its_state(
    history: HandedOver,
) -> None:
    history.make_history(RECORDS)
    status = history.command("backfill status", "--job", "history", "--json").json
    assert (status["complete"], status["cut_over_at"]) == (True, None)
    for point in (
        "cutover.after_join",
        "cutover.after_init",
        "transaction.after_send_offsets",
        "transaction.before_commit",
    ):
        killed = history.cutover(faults=[f"{point}=kill@1"])
        assert killed.exit_code == -signal.SIGKILL, killed.err
        assert history.committed_at(history.source) == [-1001], point
    history.feed(RECORDS)
    zombie = stopped(history, "transaction.before_commit")
    killed = history.cutover(faults=["transaction.after_commit=kill@1"])
    assert killed.exit_code == -signal.SIGKILL, killed.err

    done = history.cutover("--json")
    assert done.exit_code == 0, done.err
    assert done.json["was_before"] is True
    [job] = history.command("backfill status", "--json").json["jobs"]
    assert (job["job"], job["cut_over_at"]) == ("history", done.json["at"])
    expected = {(p["topic"], p["partition"]): p["offset"] for p in done.json["positions"]}
    assert len(expected) == 3
    for topic in {topic for topic, _ in expected}:
        assert history.committed_at(topic) == [expected[topic, 0]]

    history.finish_live()
    committed = history.committed_at(history.source)
    zombie.send_signal(signal.SIGCONT)
    assert "Traceback" not in zombie.finish().err
    assert history.committed_at(history.source) == committed
    assert history.findings() == []


def stopped(history: HandedOver, point: str) -> Program:
    """A cutover that stands still at a step."""
    process = history.start_command("backfill cutover", "--job", JOB, faults=[f"{point}=stop@1"])
    wait_until((history.fault_directory / f"{point}.fired").exists, f"a cutover at {point}")
    return process


@pytest.mark.exhaustive
def test_workers_refuse_to_start_until_the_job_is_cut_over(history: HandedOver) -> None:
    """Without that they processed all history once more."""
    history.make_history(100)
    server = f"kafka.bootstrap_servers={history.bootstrap_servers}"
    asked = (str(history.topology_file), "--set", server)
    start = ("run-worker", "--until-caught-up")
    refused = history.command(*start)
    assert refused.exit_code == 2
    assert "backfill job 'history'" in refused.error
    assert "is complete, not cut over" in refused.error
    planned = here("plan", *asked, "--json").json
    assert planned["refused"] == refused.error.strip()
    [job] = planned["backfill_jobs"]
    assert (job["name"], job["complete"], job["cut_over"]) == ("history", True, False)
    assert here("status", *asked, "--json").json["backfill_jobs"] == [job]
    assert "unfinished-backfill" in here("doctor", *asked, "--json").out

    settings = KafkaSettings(bootstrap_servers=history.bootstrap_servers)
    registry = ControlTopic(history.name, settings, ClusterAdmin(settings))
    [key, *_] = sorted(k for k in registry.refresh().entries if "/task/" in k)
    complete = registry.state.entries[key]
    registry.write({key: {**complete, "complete": False}})
    assert "is not complete: 2 of 3 tasks are" in history.command(*start).error
    registry.write({key: complete})

    assert history.cutover().exit_code == 0
    done = history.command(*start)
    assert done.exit_code == 0, done.err
    assert history.totals() == 100
    assert "backfill job history: cut over" in here("status", *asked).out


def test_a_worker_that_comes_during_a_cutover_goes_on_behind_it(history: HandedOver) -> None:
    history.make_history(RECORDS)
    cutover = history.start_command(
        "backfill cutover",
        *("--job", "history", "--set", "worker.transaction_timeout_seconds=300"),
        faults=["transaction.before_commit=hold@1"],
    )
    faults = history.fault_directory
    wait_until((faults / "transaction.before_commit.fired").exists, "the cutover's commit")
    early = history.work_early("early")
    wait_until(lambda: history.members() == 2, "the worker in the group")
    (faults / "release").touch()
    done = cutover.finish()
    assert done.exit_code == 0, done.err
    early.wait_for_event("task_assigned", 3)
    early.signal(signal.SIGTERM)
    assert early.wait() == 0, early.log[-4000:]

    history.feed(RECORDS)
    refused = history.cutover("--json")
    assert refused.json["was_before"] is True
    history.finish_live()
    assert history.findings() == []


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_cutover_ends_what_a_sleeper_left_open_under_an_id_that_partitions_share(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The sleeper began where the log does, before live was to begin behind the history."""
    name = unique_name("handed")
    history = HandedOver(kafka.bootstrap_servers, name, tmp_path / name, partitions=4)
    try:
        history.make_history(FEW)
        point = "transaction.before_commit"
        sleeper = history.work_early(
            "sleeper", faults=[f"{point}=stop@1"], environment={SLOW_TO_EXPIRE: "300"}
        )
        sleeper.wait_for_fault(point)
        ids = {str(event["transactional_id"]) for event in sleeper.events("task_assigned")}
        assert ids == {f"{name}:worker.{name}.sleeper:0"}
        wait_until(lambda: history.members() == 0, "the end of the sleeper's session")
        done = history.cutover("--json")
        assert done.exit_code == 0, done.err
        for topic in {position["topic"] for position in done.json["positions"]}:
            wanted = {
                p["partition"]: p["offset"] for p in done.json["positions"] if p["topic"] == topic
            }
            assert history.committed_at(topic) == [wanted[number] for number in range(4)]

        sleeper.signal(signal.SIGCONT)
        sleeper.wait_until_displaced()
        sleeper.signal(signal.SIGTERM)
        assert sleeper.wait() == 0, sleeper.log[-4000:]
        history.finish_live()
        assert history.findings() == []
    finally:
        history.stop()


def test_a_cutover_is_refused_while_a_worker_runs_and_changes_nothing(history: HandedOver) -> None:
    history.make_history(100)
    # It is held and not stopped: its session must not be over when the cutover looks.
    worker = history.work_early("early", faults=["takeover.before_init=hold@1"])
    worker.wait_for_fault("takeover.before_init")
    refused = history.cutover()
    assert refused.exit_code == 2
    assert "1 running worker" in refused.error
    assert history.committed_at(history.source) == [-1001]
    worker.signal(signal.SIGKILL)


def test_a_cutover_is_refused_if_a_worker_processed_the_range_exactly_to_its_end(
    history: HandedOver,
) -> None:
    history.make_history(100)
    group = {"bootstrap.servers": history.bootstrap_servers, "group.id": history.name}
    consumer = Consumer(group)
    consumer.commit(offsets=[TopicPartition(history.source, 0, 100)], asynchronous=False)
    consumer.close()
    refused = history.cutover()
    assert refused.exit_code == 2
    assert "live up to offset 100, the end of the range of job 'history'" in refused.error
