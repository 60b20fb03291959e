"""Topics of other programs under the names of internal topics are refused, not used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.applications.pipeline import Pipeline, WorkerProcess
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  counted:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:thousands", key: string}
      - count: {store: counts}
    to: [{topic: NAME.counted, value: json}]
"""


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    return make_pipeline(topology=TOPOLOGY, outputs={"counted": 1}, partitions=1)


def write_foreign(pipeline: Pipeline, topic: str, policy: str) -> None:
    """Create a topic as another program would, and write into it."""
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    config = {"cleanup.policy": policy, **({"retention.ms": "-1"} if policy == "delete" else {})}
    create_topics(admin, [NewTopic(topic, 1, 1, config=config)])
    producer = Producer({"bootstrap.servers": pipeline.bootstrap_servers})
    producer.produce(topic, b"\x01" + bytes(15) + b"\x07", b"500")
    assert producer.flush(60) == 0


def run(pipeline: Pipeline) -> tuple[int, WorkerProcess]:
    worker = pipeline.start_worker(until_caught_up=True)
    return worker.wait(), worker


@pytest.mark.parametrize(
    ("name", "role", "policy"),
    [
        ("counts-changelog", "changelog", "compact"),
        pytest.param("counted-repartition", "repartition", "delete", marks=pytest.mark.exhaustive),
    ],
)
def test_an_internal_topic_with_records_of_another_program_is_refused_by_name(
    pipeline: Pipeline, name: str, role: str, policy: str
) -> None:
    topic = f"{pipeline.name}-{name}"
    write_foreign(pipeline, topic, policy)
    pipeline.apply()
    pipeline.feed(5)
    code, refused = run(pipeline)
    assert code == 2, refused.log[-3000:]
    assert f"{role} topic '{topic}' (id " in refused.log
    assert "has records that application" in refused.log
    assert "did not write" in refused.log
    assert pipeline.read(f"{pipeline.name}.counted") == []
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    admin.delete_topics([topic])[topic].result()
    pipeline.apply()
    for _ in range(2):
        code, worker = run(pipeline)
        assert code == 0, worker.log[-3000:]
    assert len(pipeline.read(f"{pipeline.name}.counted")) == 5
