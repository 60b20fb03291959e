"""Calls of coroutines are in flight when a worker dies, hangs, is fenced, or is misused."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.applications.pipeline import Pipeline, number_in, wait_until

RECORDS = 4000
PARTITIONS = 4

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    on_error: ON_ERROR
    steps:
      - filter_async: {call: "tests.support.applications.coroutines:is_served", concurrency: 16}
      - map_async: {call: "tests.support.applications.coroutines:FUNCTION", OPTIONS}
    to: [{topic: NAME.doubled, value: json}]
  tripled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:triple"}]
    to: [{topic: NAME.tripled, value: json}]
"""

MakePipeline = Callable[..., Pipeline]


def topology(
    function: str = "double", options: str = "concurrency: 32", on_error: str = "fail"
) -> str:
    text = TOPOLOGY.replace("FUNCTION", function).replace("OPTIONS", options)
    return text.replace("ON_ERROR", on_error)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "order",
    ["input", pytest.param("key", marks=pytest.mark.exhaustive)],
)
def test_a_worker_killed_with_calls_in_flight_is_replaced_without_a_trace(
    make_pipeline: MakePipeline, order: str
) -> None:
    pipeline = make_pipeline(topology=topology(options=f"concurrency: 32, order: {order}"))
    pipeline.feed(RECORDS)
    supervisor = pipeline.start_worker(
        *("--processes", "2"),
        instance="pair",
        faults=["transaction.after_produce=kill@5"],
        until_caught_up=True,
    )
    assert supervisor.wait() == 0, supervisor.log[-4000:]
    assert supervisor.fired("transaction.after_produce")
    assert supervisor.events("worker_died")
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_zombie_with_calls_in_flight_writes_nothing(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(topology=topology())
    pipeline.feed(RECORDS)
    short = ["worker.session_timeout_seconds=6"]
    zombie = pipeline.start_worker(
        instance="one",
        faults=["transaction.before_commit=stop@3"],
        settings=[*short, "worker.transaction_timeout_seconds=300"],
    )
    pipeline.feed_until_fault(zombie, "transaction.before_commit")
    successor = pipeline.start_worker(instance="two", settings=short)
    successor.wait_for_event("task_assigned", PARTITIONS)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the successor's commit")
    zombie.signal(signal.SIGCONT)
    zombie.wait_until_displaced()
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "the rest")
    for worker in (zombie, successor):
        if worker.process.poll() is None:
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_hanging_call_holds_back_its_partition_and_no_other(
    make_pipeline: MakePipeline,
) -> None:
    """Record 13 is in partition 1, the fourth one there."""
    pipeline = make_pipeline(topology=topology("hang_at_thirteen", "timeout: 1h"))
    pipeline.feed(RECORDS)
    worker = pipeline.start_worker(environment={"EOS_TEST_HANGS": "1"})
    in_others = RECORDS // PARTITIONS * (PARTITIONS - 1)
    wait_until(lambda: pipeline.committed() == in_others + 3, "all others")
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == 2 * in_others + 3, "later ones")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-4000:]
    pipeline.finish()
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_coroutine_that_swallows_its_cancellation_has_failed(
    make_pipeline: MakePipeline,
) -> None:
    options = "timeout: 500ms, concurrency: 16"
    policy = "{dead_letter: NAME.dead}"
    pipeline = make_pipeline(topology=topology("swallow_at_thirteen", options, policy))
    pipeline.feed(400)
    worker = pipeline.finish()
    assert [event["step"] for event in worker.events("coroutine_abandoned")] == [
        "doubled.steps[1] map_async(tests.support.applications.coroutines:swallow_at_thirteen)"
    ]
    found = Counter(number_in(m) for m in pipeline.read(f"{pipeline.name}.doubled"))
    assert found == Counter(2 * n for n in range(400) if n != 13)
    [letter] = pipeline.read(f"{pipeline.name}.dead")
    assert number_in(letter) == 13


def test_a_coroutine_that_blocks_the_loop_is_named_with_its_stack(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(topology=topology("block_at_thirteen"))
    pipeline.feed(400)
    worker = pipeline.start_worker(until_caught_up=True, environment={"EOS_TEST_BLOCKS": "2.5"})
    assert worker.wait() == 0, worker.log[-4000:]
    [event] = worker.events("event_loop_blocked")
    assert "block_at_thirteen" in str(event["step"])
    assert "time.sleep(float(" in str(event["stack"])
    verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
def test_a_loop_blocked_for_longer_than_a_timeout_ends_the_worker(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(topology=topology("block_at_thirteen", "timeout: 500ms"))
    pipeline.feed(400)
    worker = pipeline.start_worker(until_caught_up=True, environment={"EOS_TEST_BLOCKS": "3600"})
    assert worker.wait() == 1, worker.log[-4000:]
    assert "has blocked the event loop for" in worker.log
    assert "Traceback" not in worker.log
    pipeline.topology_file.write_text(
        topology("double").replace("NAME", pipeline.name), encoding="utf-8"
    )
    pipeline.finish()
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_failed_call_ends_the_worker_after_what_came_before(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(topology=topology("refuse_at_thirteen"), partitions=1)
    pipeline.feed(400)
    worker = pipeline.start_worker(until_caught_up=True)
    assert worker.wait() == 1
    assert "thirteen is not served" in worker.log
    assert "@13 failed in step" in worker.log
    assert "Traceback" not in worker.log
    assert pipeline.committed() == 13


def test_a_resource_that_cannot_be_opened_ends_the_worker(make_pipeline: MakePipeline) -> None:
    opener = 'resources: {client: "tests.support.applications.coroutines:open_nothing"}'
    pipeline = make_pipeline(topology=topology("with_client", opener))
    pipeline.feed(40)
    worker = pipeline.start_worker(until_caught_up=True)
    assert worker.wait() == 1
    assert "cannot be opened: ConnectionRefusedError: nothing listens there" in worker.log
    assert "Traceback" not in worker.log
    assert pipeline.committed() == 0
