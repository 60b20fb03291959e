"""A result that brokers refuse is its node's: the record behind which it goes out is in order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.applications.pipeline import Pipeline, number_in, wait_until
from tests.support.processes.commands import here
from tests.support.verifiers.messages import headers_of

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    on_error: ON_ERROR
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - AGGREGATE
      - map_values: "tests.support.applications.functions:INFLATE"
    to: [{topic: NAME.doubled, value: json}]
"""
WINDOWS = "count: {window: {tumbling: 100ms}, emit: close}"
IDLE = "count: {window: {tumbling: 100ms, close_when_idle: 4s}, emit: close}"
AT_COMMIT = "count: {emit: commit}"
DEAD_LETTER = "{dead_letter: NAME.dead}"

MakeRefused = Callable[..., Pipeline]


@pytest.fixture
def make_refused(make_pipeline: Callable[..., Pipeline]) -> MakeRefused:
    """Return what makes an application of one partition whose output takes 10,000 bytes."""

    def make(aggregate: str, inflate: str, on_error: str) -> Pipeline:
        topology = TOPOLOGY.replace("AGGREGATE", aggregate).replace("INFLATE", inflate)
        pipeline = make_pipeline(
            topology=topology.replace("ON_ERROR", on_error),
            outputs={"doubled": 1},
            partitions=1,
            small_outputs=True,
        )
        pipeline.apply()
        return pipeline

    return make


def finish(pipeline: Pipeline, *, exit_code: int = 0, refused: bool = True) -> str:
    """Let a worker read to the end, and see whether the brokers refused something."""
    worker = pipeline.start_worker(
        until_caught_up=True, settings=[f"state.directory={pipeline.directory}/state"]
    )
    assert worker.wait() == exit_code, worker.log[-4000:]
    assert bool(worker.events("output_rejected")) == refused
    return worker.log


def starts(pipeline: Pipeline) -> Counter[int]:
    """The windows that must go out, by their start, with how many keys each has."""
    records = pipeline.read(pipeline.source)
    keys = {(message.timestamp()[1] // 100 * 100, number_in(message) % 10) for message in records}
    return Counter(start for start, _ in keys)


def split(windows: Counter[int]) -> tuple[Counter[int], Counter[int]]:
    """Return those windows whose results are taken, and those whose results are refused."""
    taken = Counter({start: n for start, n in windows.items() if start // 100 % 3})
    return taken, windows - taken


def changelogs(pipeline: Pipeline) -> set[bytes]:
    """The topics that dead letters of results name as their origin."""
    described = here("describe", str(pipeline.topology_file), "--json")
    assert described.exit_code == 0, described.err
    parts = json.loads(described.out)["sub_topologies"]
    return {store["changelog"].encode() for part in parts for store in part["stores"]}


def went_out(pipeline: Pipeline) -> Counter[int]:
    results = pipeline.read(f"{pipeline.name}.doubled")
    return Counter(json.loads(message.value() or b"")["start"] for message in results)


@pytest.mark.slow
@pytest.mark.parametrize(
    "on_error", [DEAD_LETTER, pytest.param("skip", marks=pytest.mark.exhaustive)]
)
def test_a_refused_window_is_set_aside_and_no_record_is(
    make_refused: MakeRefused, on_error: str
) -> None:
    pipeline = make_refused(WINDOWS, "inflate_thirds", on_error)
    pipeline.feed(210)
    log = finish(pipeline)
    windows = starts(pipeline)
    del windows[max(windows)]  # no later record has closed it
    taken, refused = split(windows)
    assert refused
    assert went_out(pipeline) == taken, log[-3000:]
    letters = pipeline.read(f"{pipeline.name}.dead")
    assert len(letters) == (0 if on_error == "skip" else sum(refused.values()))
    assert {headers_of(letter)["__streams.errors.topic"] for letter in letters} <= changelogs(
        pipeline
    )
    assert pipeline.committed() == pipeline.fed


@pytest.mark.exhaustive
def test_a_window_whose_result_is_refused_stops_the_worker_with_fail_and_is_named(
    make_refused: MakeRefused,
) -> None:
    pipeline = make_refused(WINDOWS, "inflate_thirds", "fail")
    pipeline.feed(410)
    log = finish(pipeline, exit_code=1)
    assert "Traceback" not in log
    assert any(changelog.decode() in log for changelog in changelogs(pipeline))
    assert went_out(pipeline) <= split(starts(pipeline))[0]


@pytest.mark.exhaustive
def test_a_refused_window_that_the_clock_closes_is_set_aside(make_refused: MakeRefused) -> None:
    pipeline = make_refused(IDLE, "inflate_thirds", DEAD_LETTER)
    pipeline.feed(300)
    pipeline.start_worker(settings=[f"state.directory={pipeline.directory}/state"])
    taken, refused = split(starts(pipeline))
    letters = f"{pipeline.name}.dead"
    wait_until(
        lambda: sum(went_out(pipeline).values()) >= sum(taken.values()), "the windows in order"
    )
    wait_until(lambda: len(pipeline.read(letters)) >= sum(refused.values()), "the refused windows")
    assert went_out(pipeline) == taken
    assert len(pipeline.read(letters)) == sum(refused.values())


@pytest.mark.exhaustive
def test_a_refused_result_at_the_commit_is_set_aside(make_refused: MakeRefused) -> None:
    pipeline = make_refused(AT_COMMIT, "inflate_last", DEAD_LETTER)
    pipeline.feed(500)
    finish(pipeline)
    pipeline.feed(100)
    finish(pipeline, refused=False)
    counts = [number_in(message) for message in pipeline.read(f"{pipeline.name}.doubled")]
    assert 50 not in counts
    assert counts.count(60) == 10
    letters = pipeline.read(f"{pipeline.name}.dead")
    assert {headers_of(letter)["__streams.errors.topic"] for letter in letters} <= changelogs(
        pipeline
    )
    assert pipeline.committed() == pipeline.fed
