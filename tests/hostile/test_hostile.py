"""Hostile records through real workers: each has its outcome, and nobody else bears it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import TOLD, KafkaService
from tests.hostile.cases import HEALTHY, Case, cases, inputs
from tests.hostile.drawing import Drawing
from tests.hostile.inputs import DEAD, Feeder
from tests.hostile.lanes import KEPT
from tests.hostile.world import HostileWorld
from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.faults.database_proxy import Cut, DatabaseProxy
from tests.support.servers.schema_registry import Registry

SEED = int(os.environ.get("EOS_FUZZ_SEED", "17"))

FAIL = """\
application: NAME
sources:
  in: {topic: NAME.in, value: json, timestamp: "tests.hostile.functions:moment"}
streams:
  acted:
    from: in
    steps: [{map: "tests.hostile.functions:act"}]
    to: {topic: NAME.out, value: json}
  sent:
    from: in
    steps: [{filter: "tests.hostile.functions:is_sent"}]
    to: {topic_from: "tests.hostile.functions:chosen", value: json}
"""

OFTEN = ("raise escape", "raise surrogate", "exit", "a topic that nobody has made")
"""What `make test` shows of what ends a worker; `make test-all` shows every case."""

FAILING = [
    pytest.param(case, marks=() if case.name in OFTEN else pytest.mark.exhaustive)
    for case in cases()
    if case.lane == "act" and case.expected == DEAD
]

DRAWN = 500
"""Records that are drawn; `make fuzz` goes on for as long as it is told."""

CUTS = (Cut.IN_COPY, Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT)
"""Faults of the database while rows are bisected."""

ALLOWED_MEGABYTES = 64
"""By which a worker may grow over drawn records: what librdkafka fetches ahead and caches."""


@pytest.fixture
def world(
    kafka: KafkaService,
    registry: Registry,
    unique_name: Callable[[str], str],
    database: str,
    tmp_path: Path,
) -> Iterator[HostileWorld]:
    name = unique_name("hostile")
    made = HostileWorld(kafka.bootstrap_servers, name, tmp_path, database, registry.url)
    yield made
    made.close()


@pytest.mark.slow
def test_hostile_records_have_one_outcome_each_and_harm_no_other(
    world: HostileWorld, record_property: Callable[[str, object], None]
) -> None:
    told = f"EOS_FUZZ_SEED={SEED}"
    record_property(TOLD, told)
    world.feed(inputs())
    world.start()
    world.wait()
    wrong = world.wrong()
    assert wrong == [], "\n".join(wrong)
    letters = {str(world.fed[place].name): at for place, at in world.letters.items()}
    # The largest records are past; of what is drawn, none is large.
    before = world.megabytes()
    world.feed(Drawing(SEED).inputs(DRAWN, world.moment))
    world.wait()
    assert world.wrong() == [], told
    grown = [now - then for now, then in zip(world.megabytes(), before, strict=True)]
    assert max(grown) < ALLOWED_MEGABYTES, f"{before} MB grew by {grown}; {told}"
    assert world.stop() == [0, 0]
    audited = world.run("audit", str(world.transforms), "--json")
    assert audited.exit_code == 0, (audited.exit_code, audited.err[-3000:])
    verdict = audited.json
    found = {what: verdict[what] for what in ("lost", "duplicated", "torn")}
    assert found == {"lost": 0, "duplicated": 0, "torn": 0}, audited
    for command in commands_about_control_characters(world, letters):
        done = world.run(*command)
        assert done.exit_code == 0, (command, done.err)
        written = done.out + done.err
        assert "\\u001b]0;owned\\u0007" in written or command[1] == "list", command
        assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", written) == [], command


def test_hostile_rows_have_one_outcome_each_though_the_database_goes(
    world: HostileWorld,
) -> None:
    rows = [each for each in inputs() if each.lane == KEPT]
    with DatabaseProxy(world.dsn) as proxy:
        worker = world.start_tables(proxy.dsn)
        for number, cut in enumerate(CUTS, 1):
            proxy.cut(cut)
            world.feed(rows)
            wait_until(lambda number=number: len(proxy.happened) == number, cut)
            world.wait()
        proxy.refuse()
        world.feed(rows)
        worker.wait_for_event("database_unavailable", len(CUTS) + 1)
        assert len(world.waiting()) == len(rows)
        proxy.accept()
        world.wait()
        assert world.wrong() == []
        assert world.stop() == [0]


def commands_about_control_characters(
    world: HostileWorld, letters: Mapping[str, str]
) -> list[tuple[str, ...]]:
    """Return commands that print what is in records."""
    app = str(world.transforms)
    stores = world.run("state", "stats", app, "--json").json["stores"]
    [rows] = [each["store"] for each in stores if each["store"].startswith("rows")]
    return [
        ("dead-letters", "list", app),
        ("dead-letters", "show", app, letters["raise escape"]),
        ("topics", "read", f"{world.name}.text"),
        ("state", "scan", app, rows),
    ]


@pytest.mark.parametrize("case", FAILING, ids=lambda case: f"{case.lane}-{case.name}")
def test_on_error_fail_ends_the_worker_and_names_the_record(
    case: Case, make_pipeline: Callable[..., Pipeline]
) -> None:
    pipeline = make_pipeline(topology=FAIL, partitions=1, outputs={"out": 1})
    made = replace(case, lane="in", key=b"k").as_input(1)
    healthy = replace(HEALTHY["act"], lane="in")
    feeder = Feeder(pipeline.bootstrap_servers, f"{pipeline.name}.")
    feeder.feed([healthy.as_input(0), made, healthy.as_input(2)])
    feeder.close()
    worker = pipeline.start_worker(until_caught_up=True)
    assert worker.wait() == 1
    [error] = [line for line in worker.log.splitlines() if line.startswith("error: ")]
    assert f"{pipeline.name}.in[0]@1" in error
    assert "on_error" in error
    assert "Traceback" not in worker.log
    assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", worker.log) == []
    assert pipeline.committed() == 1
