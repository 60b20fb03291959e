"""Positions after the last marker: nothing lags, and retention may remove the markers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.engine.task.offsets import Progress
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.records import TopicPartition
from tests.support.applications.pipeline import Pipeline, wait_until

SECOND = """\
application: NAME
sources:
  numbers: {topic: FIRST.doubled, key: bytes, value: json}
streams:
  again:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{topic: NAME.again, key: bytes, value: json}]
"""


@pytest.mark.exhaustive
def test_a_chain_of_idle_applications_is_quiet_and_outlasts_retention(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    first = make_pipeline()
    second = make_pipeline(topology=SECOND.replace("FIRST", first.name), outputs={"again": 4})
    admin = ClusterAdmin(KafkaSettings(bootstrap_servers=first.bootstrap_servers))
    read = {
        p: [TopicPartition(topic, n) for n in range(first.partitions)]
        for p, topic in ((first, first.source), (second, f"{first.name}.doubled"))
    }
    workers = [first.start_worker(), second.start_worker()]
    first.feed(40)

    def lag(pipeline: Pipeline) -> int:
        return pipeline.unread(read[pipeline][0].topic)

    def transactions() -> Sequence[int]:
        found = [p for one in read for p in admin.committed(one.name, read[one])]
        return [Progress.parse(position.metadata).transaction for position in found]

    def is_through() -> bool:
        return len(second.read(f"{second.name}.again")) == 40

    wait_until(lambda: is_through() and lag(first) == lag(second) == 0, "no lag")
    before = transactions()
    time.sleep(3)
    assert transactions() == before, "offsets are committed once more after each marker"
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]

    ends = admin.high_watermarks(read[second])
    removed = [KafkaPartition(*partition, end) for partition, end in ends.items()]
    kafka = AdminClient({"bootstrap.servers": first.bootstrap_servers})
    for answer in kafka.delete_records(removed).values():
        answer.result(60)
    first.feed(40)
    first.finish()
    second.finish()
    assert len(second.read(f"{second.name}.again")) == 80
