"""Batch operators change how records are run, not what becomes of them when a worker dies."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.applications.pipeline import Pipeline

RECORDS = 8000

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps:
      - map_batch: {call: "tests.support.applications.batch_functions:double", schema: {n: int64}}
    to: [{topic: NAME.doubled}]
  tripled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:triple"}]
    to: [{topic: NAME.tripled, value: json}]
"""


def test_a_worker_killed_amid_batches_is_replaced_without_a_trace(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline(topology=TOPOLOGY)
    pipeline.feed(RECORDS)
    supervisor = pipeline.start_worker(
        *("--processes", "2"),
        instance="pair",
        faults=["transaction.after_produce=kill@3"],
        until_caught_up=True,
    )
    assert supervisor.wait() == 0, supervisor.log[-4000:]
    assert supervisor.fired("transaction.after_produce")
    assert supervisor.events("worker_died")
    verdict = pipeline.verify()
    assert verdict.clean, verdict
