"""Positions that are set before an application has ever run."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.support.applications.pipeline import Pipeline
from tests.support.processes.commands import here

COUNTED = """\
application: NAME
sources:
  values: {topic: NAME.in, key: string, value: json}
streams:
  counted:
    from: values
    steps: [{count: {}}]
    to: [{topic: NAME.counted, value: json}]
"""


@pytest.mark.parametrize("begun", [False, True], ids=["before apply", "after apply"])
def test_a_worker_starts_at_positions_that_were_set_before_its_first_start(
    make_pipeline: Callable[..., Pipeline], begun: bool
) -> None:
    """The partitions without a position start where `worker.start` says, at the beginning."""
    pipeline = make_pipeline(topology=COUNTED, outputs={"counted": 1}, partitions=2)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap_servers})
    for number in range(8):
        producer.produce(pipeline.source, b"1", f"key {number % 2}", number % 2)
    assert producer.flush(60) == 0
    if begun:
        pipeline.apply()
    server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    place = f"{pipeline.source}[0]=3"
    done = here("positions", "set", str(pipeline.topology_file), place, "--set", server)
    assert done.exit_code == 0, done.err
    pipeline.apply()
    worker = pipeline.start_worker(
        until_caught_up=True, settings=[f"state.directory={pipeline.directory}/state"]
    )
    assert worker.wait() == 0, worker.log[-3000:]
    counts = {
        message.key(): json.loads(message.value() or b"")
        for message in pipeline.read(f"{pipeline.name}.counted")
    }
    assert counts == {b"key 0": 1, b"key 1": 4}
