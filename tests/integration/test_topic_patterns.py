"""Sources by pattern on a real broker: topics that are there, come later, go, or loop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.applications.identity import topic_id
from tests.support.applications.patterned import TOPOLOGY, Patterned
from tests.support.applications.pipeline import WorkerProcess, wait_until
from tests.support.processes.commands import here
from tests.support.processes.programs import Finished
from tests.support.verifiers.asked import ANY_PORT, Scraped, addresses_of

Make = Callable[..., Patterned]


@pytest.fixture
def make(kafka: Any, unique_name: Any, tmp_path: Path) -> Iterator[Make]:
    made: list[Patterned] = []

    def pipeline(**options: Any) -> Patterned:
        name = unique_name("app")
        made.append(Patterned(kafka.bootstrap_servers, name, tmp_path / name, **options))
        return made[-1]

    yield pipeline
    for one in made:
        one.stop()


def ended_well(worker: WorkerProcess) -> None:
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]


def test_a_topic_that_comes_while_workers_run_is_read_once_from_its_beginning(make: Make) -> None:
    """Topics of 1, 2 and 4 partitions: each has tasks of its own. Both workers take it up."""
    pipeline = make()
    pipeline.create("one", 1)
    pipeline.create("Two-b", 2)
    pipeline.apply()
    workers = [pipeline.start_worker(instance=name) for name in ("a", "b")]
    pipeline.send("one", 20)
    pipeline.send("Two-b", 20)
    pipeline.wait_until_merged()

    pipeline.create("later", 4)
    pipeline.send("later", 40)
    pipeline.send("one", 10)
    pipeline.wait_until_merged()
    wait_until(lambda: pipeline.findings() == [], "the counts of all records")
    for worker in workers:
        worker.wait_for_event("matched_topics_changed")
        [changed] = worker.events("matched_topics_changed")
        assert changed["reason"] == f"found {pipeline.topic('later')}"
        ended_well(worker)
    tasks = {str(e["task"]) for w in workers for e in w.events("task_assigned")}
    assert {f"merged.{pipeline.topic('later')}[{n}]" for n in range(4)} <= tasks


@pytest.mark.exhaustive
def test_with_start_latest_a_topic_that_is_found_later_is_still_read_from_its_beginning(
    make: Make,
) -> None:
    pipeline = make()
    first = pipeline.create("one", 1)
    pipeline.send("one", 5)
    pipeline.apply()
    worker = pipeline.start_worker(settings=["worker.start=latest"])
    worker.wait_for_event("task_assigned")
    pipeline.create("later", 1)
    pipeline.send("later", 7)
    wait_until(lambda: pipeline.merged().total() >= 7, "the records of the later topic")
    assert pipeline.merged() == {(pipeline.topic("later"), n): 1 for n in range(7)}, first
    ended_well(worker)


@pytest.mark.exhaustive
def test_a_deleted_topic_leaves_the_others_running_and_made_anew_it_ends_the_worker(
    make: Make,
) -> None:
    pipeline = make()
    pipeline.create("one", 1)
    pipeline.create("two", 2)
    pipeline.apply()
    worker = pipeline.start_worker()
    pipeline.send("one", 10)
    pipeline.send("two", 10)
    pipeline.wait_until_merged()
    known = topic_id(pipeline.bootstrap_servers, pipeline.topic("two"))
    pipeline.delete("two")
    worker.wait_for_event("matched_topics_changed")
    [changed] = worker.events("matched_topics_changed")
    assert changed["reason"] == (
        f"topic {pipeline.topic('two')!r} was deleted, and its unread records with it"
    )
    pipeline.send("one", 10)
    pipeline.wait_until_merged()
    assert pipeline.findings() == []

    pipeline.create("two", 2)
    assert worker.wait() == 2, worker.log[-3000:]
    assert f"the application knows {known}" in worker.log
    assert f"positions set APP {pipeline.topic('two')}=earliest" in worker.log


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "topology",
    [
        TOPOLOGY,
        pytest.param(TOPOLOGY.partition("  counted:")[0], marks=pytest.mark.exhaustive),
    ],
)
def test_a_pattern_that_matches_nothing_waits_for_the_first_topic(
    make: Make, topology: str
) -> None:
    """Also a topology whose worker has no other topic to read."""
    pipeline = make(topology=topology)
    pipeline.apply()
    pipeline.finish()
    worker = pipeline.start_worker()
    worker.wait_for_event("pattern_matches_nothing")
    pipeline.create("one", 3)
    pipeline.send("one", 12)
    pipeline.wait_until_merged()
    if topology is TOPOLOGY:
        wait_until(lambda: pipeline.findings() == [], "the counts of all records")
    ended_well(worker)


LOOPING = """\
application: NAME
sources:
  numbers: {pattern: 'NAME\\.from\\..*', key: bytes, value: json}
streams:
  sent:
    from: numbers
    on_error: {dead_letter: NAME.dead}
    to: [{topic_from: "tests.support.applications.patterned:back_for_even", value: json}]
"""


def test_a_record_whose_chosen_topic_the_pattern_matches_is_an_error_of_the_record(
    make: Make,
) -> None:
    pipeline = make(topology=LOOPING, outputs={"odd": 1})
    pipeline.create("one", 1)
    pipeline.apply()
    pipeline.send("one", 10)
    pipeline.finish()
    assert len(pipeline.read(pipeline.topic("one"))) == 10
    assert len(pipeline.read(f"{pipeline.name}.odd")) == 5
    [*dead] = pipeline.read(f"{pipeline.name}.dead")
    assert len(dead) == 5
    errors = [value for m in dead for name, value in m.headers() or () if "matches" in str(value)]
    assert errors, [m.headers() for m in dead]


def test_plan_and_describe_show_the_pattern_and_its_topics(make: Make) -> None:
    pipeline = make()
    pipeline.create("one", 1)
    pipeline.create("two", 2)
    servers = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    for command in (["plan"], ["describe"]):
        shown = here(*command, str(pipeline.topology_file), "--set", servers)
        assert shown.exit_code in (0, 1), shown.err
        assert "from\\..* of source numbers" in shown.out, shown.out
    plan = here("plan", str(pipeline.topology_file), "--set", servers)
    assert f"matches {pipeline.topic('one')}, {pipeline.topic('two')}" in plan.out, plan.out
    acls = here("plan", str(pipeline.topology_file), "--acls", "--set", servers)
    assert "Topic app* (prefixed): Read" in acls.out, acls.out
    assert f"Topic {pipeline.topic('one')}:" not in acls.out


@pytest.mark.exhaustive
def test_commands_and_gauges_know_the_matched_topics(make: Make) -> None:
    pipeline = make()
    for ending in ("one", "two"):
        pipeline.create(ending, 2)
    pipeline.apply()
    for ending in ("one", "two"):
        pipeline.send(ending, 10)
    recorded = ["worker.receipts=true"]
    worker = pipeline.start_worker(settings=[*recorded, f"worker.http_address={ANY_PORT}"])
    pipeline.wait_until_merged()
    wait_until(lambda: pipeline.findings() == [], "the counts of all records")
    addresses = addresses_of(worker)
    known = [pipeline.topic(ending) for ending in ("one", "two")]

    def measured() -> set[str]:
        return {labels["topic"] for labels in Scraped(addresses).labels("lag_records")}

    wait_until(lambda: {*known} <= measured(), "the lag of each matched topic")
    wait_until(lambda: Scraped(addresses).sum("lag_records") == 0, "no lag")
    read = [Scraped(addresses).sum("records_read_total", topic=topic) for topic in known]
    assert read == [10, 10]
    ended_well(worker)

    def run(command: str, *arguments: str) -> Finished:
        servers = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
        settings = [part for one in (servers, *recorded) for part in ("--set", one)]
        return here(command, *arguments, str(pipeline.topology_file), *settings)

    audited = run("audit")
    assert audited.exit_code == 0, audited.out
    assert "40 input records processed, 60 output records visible" in audited.out
    doctor = run("doctor")
    assert (doctor.exit_code, doctor.out.count("error:")) == (0, 0), doctor.out
    for topic in ("merged", "counted"):
        [*records] = pipeline.read(f"{pipeline.name}.{topic}")
        place = f"{records[-1].topic()}[{records[-1].partition()}]@{records[-1].offset()}"
        found = run("why", place).out
        assert f"input        {pipeline.name}" in found
        assert ".from." in found
        assert "gives this record, byte for byte" in found

    pipeline.delete("two")
    wait_until(lambda: pipeline.topic("two") not in run("plan").out, "the deletion")
    audited = run("audit")
    assert audited.exit_code == 0, audited.out
    assert "30 input records processed" in audited.out
    assert f"topic {pipeline.topic('two')} was deleted: its 20 outputs are not" in audited.out
