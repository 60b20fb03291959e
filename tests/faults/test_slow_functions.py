"""Functions that are slow, but not as slow as a transaction may be, get through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.applications.pipeline import Pipeline, number_in

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:FUNCTION"}]
    to: [{topic: NAME.doubled, value: json}]
"""
AT_COMMIT = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count: {emit: commit}
      - map_values: "tests.support.applications.functions:slow_result"
    to: [{topic: NAME.doubled, value: json}]
"""

MakePipeline = Callable[..., Pipeline]


def run(pipeline: Pipeline, timeout_seconds: float, **more: str) -> str:
    """Let one worker read to the end; no transaction may expire."""
    settings = [
        f"worker.transaction_timeout_seconds={timeout_seconds}",
        f"state.directory={pipeline.directory}/state",
        *(f"worker.{name}={value}" for name, value in more.items()),
    ]
    worker = pipeline.start_worker(until_caught_up=True, settings=settings)
    assert worker.wait() == 0, worker.log[-4000:]
    assert not worker.events("task_fenced"), worker.log[-4000:]
    return worker.log


def assert_each_once(pipeline: Pipeline) -> None:
    found = Counter(number_in(m) for m in pipeline.read(f"{pipeline.name}.doubled"))
    assert found == Counter(range(pipeline.fed))


@pytest.mark.exhaustive
def test_a_pass_over_many_slow_tasks_ends_before_a_transaction_expires(
    make_pipeline: MakePipeline,
) -> None:
    """Of 12 tasks each takes half a second for a record; a transaction may take four."""
    topology = TOPOLOGY.replace("FUNCTION", "slow")
    pipeline = make_pipeline(topology=topology, partitions=12, outputs={"doubled": 1})
    pipeline.feed(24)
    run(pipeline, 4)
    assert_each_once(pipeline)


def test_records_that_become_slow_end_their_run_early(make_pipeline: MakePipeline) -> None:
    """By then many are run at once; 40 of a quarter of a second outlast two transactions."""
    topology = TOPOLOGY.replace("FUNCTION", "slow_later")
    pipeline = make_pipeline(topology=topology, partitions=1, outputs={"doubled": 1})
    pipeline.feed(2040)
    log = run(pipeline, 4)
    assert "transaction_too_long" not in log
    assert_each_once(pipeline)


@pytest.mark.exhaustive
def test_a_slow_record_behind_others_gets_a_transaction_of_its_own(
    make_pipeline: MakePipeline,
) -> None:
    """Three seconds of four are too many behind 1.2 s of others, and few enough alone."""
    topology = TOPOLOGY.replace("FUNCTION", "slow_at_ten")
    pipeline = make_pipeline(topology=topology, partitions=1, outputs={"doubled": 1})
    pipeline.feed(20)
    run(pipeline, 4, commit_interval_seconds="1.2")
    assert_each_once(pipeline)


def test_a_record_that_outlasts_a_transaction_of_its_own_is_named_when_it_returns(
    make_pipeline: MakePipeline,
) -> None:
    """It takes three seconds of two: once after others, and once alone."""
    topology = TOPOLOGY.replace("FUNCTION", "slow_at_ten")
    pipeline = make_pipeline(topology=topology, partitions=1, outputs={"doubled": 1})
    pipeline.feed(20)
    settings = ["worker.transaction_timeout_seconds=2", "worker.commit_interval_seconds=0.5"]
    worker = pipeline.start_worker(until_caught_up=True, settings=settings)
    assert worker.wait() == 1, worker.log[-4000:]
    assert f"record {pipeline.source}[0]@10 was processed until" in worker.log
    assert worker.events("transaction_too_long")
    run(pipeline, 6)
    assert_each_once(pipeline)


@pytest.mark.exhaustive
def test_what_follows_at_the_commit_is_cut_to_what_a_transaction_can_take(
    make_pipeline: MakePipeline,
) -> None:
    """Ten keys of half a second each are too many for a transaction of four seconds."""
    pipeline = make_pipeline(topology=AT_COMMIT, partitions=1, outputs={"doubled": 1})
    pipeline.apply()
    pipeline.feed(10)
    log = run(pipeline, 4, commit_interval_seconds="1.3")  # All ten keys come before a commit.
    assert "transaction_too_long" in log
    results = pipeline.read(f"{pipeline.name}.doubled")
    assert {m.key(): m.value() for m in results} == {b"%d" % key: b"1" for key in range(10)}


@pytest.mark.exhaustive
def test_a_slow_task_does_not_keep_others_from_their_turn(make_pipeline: MakePipeline) -> None:
    topology = TOPOLOGY.replace("FUNCTION", "slow")
    pipeline = make_pipeline(topology=topology, partitions=24, outputs={"doubled": 1})
    pipeline.feed(96)
    run(pipeline, 6)
    assert_each_once(pipeline)
