"""Workers whose writes exceed a quota, set through the brokers' admin API."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.servers.quotas import set_quota

COPIED = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  copied:
    from: numbers
    to: [{topic: NAME.copied, value: json}]
"""

MORE = 500
RECORD_BYTES = 1000
TIMEOUT_SECONDS = 10

TOO_LOW = 50
"""A record of 1,000 bytes is throttled for 10 s."""

HIGH = 10**9

MakePipeline = Callable[..., Pipeline]


@pytest.mark.parametrize(
    ("records", "quota", "steps"),
    [(1000, 80_000, 0), pytest.param(3000, 62_000, 2, marks=pytest.mark.exhaustive)],
)
def test_transactions_become_as_small_as_a_quota_needs_and_large_again_after_it(
    make_pipeline: MakePipeline, records: int, quota: int, steps: int
) -> None:
    """The first request of librdkafka has up to 1 MB, for which brokers throttle 3 s, or 6 s: more
    than half of the transaction timeout. They then count it for 10 s more."""
    pipeline = copying(make_pipeline)
    feed(pipeline, records)
    set_quota(pipeline.bootstrap_servers, pipeline.name, quota)
    worker = pipeline.start_worker(settings=settings(pipeline))
    worker.wait_for_event("transactions_limited")
    feed(pipeline, MORE, records)
    seen = [pipeline.committed()]
    for _ in range(steps):
        wait_until(lambda: pipeline.committed() > seen[-1], "progress")
        seen.append(pipeline.committed())
    assert seen[-1] < records + MORE
    set_quota(pipeline.bootstrap_servers, pipeline.name, HIGH)
    wait_until(lambda: pipeline.committed() == records + MORE, "all records")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    assert len(worker.events("transactions_limited")) == 1
    assert {event["client"] for event in worker.events("client_throttled")} == {"producer"}
    verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.exhaustive
def test_a_quota_too_low_for_a_single_record_is_named(make_pipeline: MakePipeline) -> None:
    pipeline = copying(make_pipeline)
    feed(pipeline, 20)
    set_quota(pipeline.bootstrap_servers, pipeline.name, TOO_LOW)
    worker = pipeline.start_worker(settings=settings(pipeline))
    assert worker.wait() == 1
    [error] = [line for line in worker.log.splitlines() if line.startswith("error: ")]
    print(error)
    assert "the quota is about" in error
    assert f"worker.transaction_timeout_seconds={TIMEOUT_SECONDS}" in error
    assert pipeline.committed() == 0


def copying(make_pipeline: MakePipeline) -> Pipeline:
    return make_pipeline(topology=COPIED, outputs={"copied": 1}, partitions=2)


def settings(pipeline: Pipeline) -> list[str]:
    return [
        f"kafka.properties.client.id={pipeline.name}",
        f"worker.transaction_timeout_seconds={TIMEOUT_SECONDS}",
    ]


def feed(pipeline: Pipeline, count: int, first: int = 0) -> None:
    """Write numbers with so many bytes that no compression makes smaller."""
    producer = Producer(
        {"bootstrap.servers": pipeline.bootstrap_servers, "enable.idempotence": True}
    )
    for n in range(first, first + count):
        value = {"n": n, "pad": random.randbytes(RECORD_BYTES // 2).hex()}
        producer.produce(pipeline.source, json.dumps(value).encode(), str(n).encode(), n % 2)
    assert producer.flush(60) == 0
