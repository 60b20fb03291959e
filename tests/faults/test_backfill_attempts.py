"""Attempts of backfill tasks are killed, stand still, meet each other; records count once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eosframework.embedded import KafkaCluster, start_kafka
from eosframework.errors import EntryDamaged
from eosframework.spark.backfill.stage_runner import end_leftovers
from tests.conftest import SMALL_BROKER, KafkaService
from tests.support.applications.backfilled import JOB, QUICK, Backfill
from tests.support.applications.feeding import write_record
from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.applications.totals import Totals
from tests.support.processes.waiting import PATIENCE_SECONDS

FENCED = 3
"""The exit code of an attempt that another one took its task from."""

SMALL_CHUNKS = [*QUICK, "backfill.chunk_records=100"]

WRITER_STEPS = ["transaction.after_produce@3", "transaction.before_commit@3"]

KEYED_STEPS = [
    "takeover.after_init",
    "takeover.after_assign",
    "transaction.before_commit@1",
    "transaction.after_produce@3",
    "transaction.before_commit@3",
    "transaction.after_commit@3",
    "state.before_write@2",
    "state.after_write@2",
    "state.during_restore",
    "backfill.after_complete",
]


@pytest.fixture
def make_backfill() -> Iterator[Callable[..., Backfill]]:
    """Make the tasks of a job over a pipeline's topics; their attempts are ended."""
    made: list[Backfill] = []

    def make(pipeline: Pipeline, settings: list[str] = SMALL_CHUNKS) -> Backfill:
        made.append(Backfill(pipeline, settings))
        return made[-1]

    yield make
    for backfill in made:
        backfill.stop()


def kill_at(backfill: Backfill, sub_topology: str, step: str, *, of_log: bool = False) -> None:
    """Kill an attempt at a step, which has to come."""
    point, _, hit = step.partition("@")
    fault = f"{point}=kill@{hit or 1}"
    attempt = backfill.start(sub_topology, 0, 0, of_log=of_log, fault=fault)
    attempt.ends_with(-signal.SIGKILL)
    assert attempt.fired(point)


@pytest.mark.slow
def test_attempts_killed_at_every_step_lose_and_double_nothing(
    kafka: KafkaService,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    make_backfill: Callable[..., Backfill],
) -> None:
    totals = Totals(kafka.bootstrap_servers, unique_name("app"), tmp_path, partitions=1)
    totals.feed(2000)
    backfill = make_backfill(totals, [*SMALL_CHUNKS, "worker.receipts=true"])
    for step in WRITER_STEPS:
        kill_at(backfill, "totals", step, of_log=True)
    assert backfill.run("totals", 0, of_log=True).records == 2000
    for step in KEYED_STEPS:
        kill_at(backfill, "totals.keyed", step)
    progress = backfill.run("totals.keyed", 0)
    assert progress.complete
    assert progress.records == 2000
    assert backfill.run("latest.keyed", 0).records == 2000
    assert totals.findings() == []
    backfill.register()
    verdict = backfill.audit()
    assert verdict.clean, verdict
    assert (verdict.input, verdict.share) == (3 * 2000, 1.0)


@pytest.mark.exhaustive
def test_an_attempt_names_the_entry_of_a_changelog_that_cannot_be_read(
    kafka: KafkaService,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    make_backfill: Callable[..., Backfill],
) -> None:
    totals = Totals(kafka.bootstrap_servers, unique_name("app"), tmp_path, partitions=1)
    totals.feed(1000)
    backfill = make_backfill(totals)
    backfill.run("totals", 0, of_log=True)
    kill_at(backfill, "totals.keyed", "transaction.after_commit@3")
    changelog = f"{totals.name}-totals.aggregate-changelog"
    entries = totals.read(changelog)
    entry = [m for m in entries if m.key() == b"7"][-1:]
    assert entry, [m.key() for m in entries]
    offset = write_record(
        totals.bootstrap_servers, changelog, b"7", b"\x01" + bytes(8) + b"no total"
    )
    with pytest.raises(EntryDamaged) as raised:
        backfill.run("totals.keyed", 0, 1)
    assert f"The entry is {changelog}[0]@{offset} (key b'7')" in str(raised.value)
    write_record(totals.bootstrap_servers, changelog, b"7", entry[0].value())
    assert backfill.run("totals.keyed", 0, 2).records == 1000
    assert backfill.run("latest.keyed", 0).records == 1000
    assert totals.findings() == []


def test_an_attempt_that_merely_starts_does_not_fence_one_that_is_well(
    make_pipeline: Callable[..., Pipeline], make_backfill: Callable[..., Backfill]
) -> None:
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(3000)
    backfill = make_backfill(pipeline)
    first = backfill.start(
        "doubled",
        0,
        0,
        fault="transaction.before_commit=hold@2",
        settings=["worker.transaction_timeout_seconds=300"],
        environment={"EOS_TEST_ROW_SECONDS": "0.4"},
    )
    first.wait_for_fault("transaction.before_commit")
    # What is left takes the first one longer than the second one would wait for a silent one, and
    # each of its rows takes so much less that a busy machine does not make it look silent.
    patient = ["backfill.stall_seconds=10"]
    second = backfill.start("doubled", 0, 1, fault="takeover.before_init=kill", settings=patient)
    wait_until(lambda: "attempt_watches" in second.said, "a second attempt that watches")
    first.release()
    complete = first.progress()
    assert second.progress() == complete
    assert not second.fired("takeover.before_init")
    assert "attempt_watches" in second.said
    assert pipeline.verify().clean


def test_an_attempt_that_stands_still_is_taken_over_and_ends_fenced(
    make_pipeline: Callable[..., Pipeline], make_backfill: Callable[..., Backfill]
) -> None:
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(3000)
    backfill = make_backfill(pipeline)
    fault = "transaction.after_produce=stop@5"
    first = backfill.start("doubled", 0, 0, of_log=True, fault=fault)
    first.wait_for_fault("transaction.after_produce")
    assert backfill.start("doubled", 0, 1, of_log=True).progress().records == 3000
    first.signal(signal.SIGCONT)
    first.ends_with(FENCED)
    assert "was taken over by another attempt" in first.said
    assert pipeline.verify().clean


def test_what_a_killed_attempt_left_open_is_ended_and_not_waited_for(
    make_pipeline: Callable[..., Pipeline], make_backfill: Callable[..., Backfill]
) -> None:
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(3000)
    backfill = make_backfill(pipeline, [*SMALL_CHUNKS, "worker.transaction_timeout_seconds=600"])
    killed = backfill.start("doubled", 0, 0, of_log=True, fault="transaction.before_commit=hold@3")
    killed.wait_for_fault("transaction.before_commit")
    journal = backfill.journal
    wait_until(lambda: bool(journal.leftovers(0)), "progress that is sent and not committed")
    killed.signal(signal.SIGKILL)
    killed.ends_with(-signal.SIGKILL)
    job = (journal, pipeline.name, JOB, backfill.settings)
    [ended] = end_leftovers(*job, decided_seconds=0)
    assert ended == f"{pipeline.name}:backfill.history.doubled:0"
    assert not journal.leftovers(PATIENCE_SECONDS)
    assert end_leftovers(*job) == []
    assert backfill.run("doubled", 0, of_log=True).records == 3000
    assert pipeline.verify().clean


def test_attempts_with_ids_of_their_own_would_double_records(
    make_pipeline: Callable[..., Pipeline], make_backfill: Callable[..., Backfill]
) -> None:
    """The same as above with the attempt's number in the id: this is what fencing is for."""
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(3000)
    backfill = make_backfill(pipeline, [*SMALL_CHUNKS, "worker.receipts=true"])
    own_ids = {"EOS_TEST_OWN_IDS": "1"}
    first = backfill.start(
        "doubled",
        0,
        0,
        fault="transaction.after_produce=stop@5",
        settings=["worker.transaction_timeout_seconds=300"],
        environment=own_ids,
    )
    first.wait_for_fault("transaction.after_produce")
    assert backfill.start("doubled", 0, 1, environment=own_ids).progress().complete
    first.signal(signal.SIGCONT)
    first.wait()
    doubled = pipeline.verify().duplicated
    assert doubled
    backfill.register()
    assert backfill.audit().duplicated == len(doubled)


def test_an_attempt_whose_transaction_expired_goes_on_if_nobody_else_came(
    make_pipeline: Callable[..., Pipeline], make_backfill: Callable[..., Backfill]
) -> None:
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(3000)
    backfill = make_backfill(pipeline)
    short = ["worker.transaction_timeout_seconds=10", "backfill.chunk_records=100000"]
    attempt = backfill.start(
        "doubled",
        0,
        0,
        fault="transaction.before_commit=stop@3",
        settings=short,
        environment={"EOS_TEST_ROW_SECONDS": "0.05"},
    )
    attempt.wait_for_fault("transaction.before_commit")
    assert not pipeline.nothing_is_open()
    wait_until(pipeline.nothing_is_open, "the brokers' end of the open transaction")
    attempt.signal(signal.SIGCONT)
    assert attempt.progress().records == 3000
    # Records that were still queued fail by their own age, and the commit has no answer.
    assert "task_fenced" in attempt.said or "outcome_unknown" in attempt.said
    assert pipeline.verify().clean


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker of this test's own, to be broken."""
    cluster = start_kafka(tmp_path / "kafka", fast_start=True, properties=SMALL_BROKER)
    yield cluster
    cluster.kill()


@pytest.mark.exhaustive
def test_attempts_go_on_after_their_broker_was_killed_and_restarted(
    own_kafka: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    make_backfill: Callable[..., Backfill],
) -> None:
    name = unique_name("app")
    totals = Totals(own_kafka.bootstrap_servers, name, tmp_path / name, partitions=1)
    totals.feed(2000)
    short = ["kafka.request_timeout_seconds=10", "worker.transaction_timeout_seconds=20"]
    backfill = make_backfill(totals, [*SMALL_CHUNKS, *short])
    backfill.run("totals", 0, of_log=True)
    backfill.run("latest.keyed", 0)
    attempt = backfill.start("totals.keyed", 0, 0, fault="transaction.before_commit=hold@5")
    attempt.wait_for_fault("transaction.before_commit")
    [node] = own_kafka.nodes
    node.kill()
    assert not node.running
    attempt.release()
    node.start()
    assert attempt.progress().records == 2000
    failures = ("producer_suspect", "outcome_unknown", "transaction_aborted", "task_fenced")
    assert any(event in attempt.said for event in failures)
    assert totals.findings() == []
