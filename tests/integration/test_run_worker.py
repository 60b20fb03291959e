"""`run-worker` on a real broker, when nothing breaks."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.applications.handed_over import HandedOver
from tests.support.applications.pipeline import Pipeline, number_in, wait_until

CHOSEN = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  spread:
    from: numbers
    to: [{topic_from: "tests.support.applications.functions:by_parity", value: json}]
"""


@pytest.mark.every_provider
def test_sigterm_commits_what_is_complete_and_a_restart_goes_on(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline()
    pipeline.feed(3000)
    worker = pipeline.start_worker()
    wait_until(lambda: pipeline.committed() > 0, "a first commit")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    assert worker.events("stop_requested")
    pipeline.feed(1000)
    pipeline.finish()
    verdict = pipeline.verify()
    assert verdict.clean, verdict
    assert pipeline.committed() == 4000


@pytest.mark.exhaustive
def test_several_workers_are_caught_up_when_all_of_them_are(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Partitions change hands when the second worker joins; what is read twice counts once."""
    name = unique_name("together")
    together = HandedOver(kafka.bootstrap_servers, name, tmp_path / name, partitions=4)
    try:
        together.feed(3000)
        workers = together.start_worker("--processes", "2", until_caught_up=True)
        assert workers.wait(600) == 0, workers.log[-3000:]
        assert together.totals() == 3000
    finally:
        together.stop()


def test_caught_up_means_read_to_the_end_although_markers_take_offsets(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    """The input ends with the markers of its own transactions, one of them aborted."""
    pipeline = make_pipeline(partitions=1)
    producer = Producer(
        {"bootstrap.servers": pipeline.bootstrap_servers, "transactional.id": pipeline.name}
    )
    producer.init_transactions(60)
    for n in range(4):
        producer.begin_transaction()
        producer.produce(pipeline.source, json.dumps({"n": n}).encode(), str(n).encode())
        producer.flush(60)
        if n == 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    pipeline.finish()
    verdict = pipeline.verify()
    assert verdict.clean, verdict
    assert len(pipeline.read(f"{pipeline.name}.doubled")) == 3


def test_at_least_once_loses_nothing_and_doubles_what_exactly_once_would_not(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline()
    pipeline.feed(3000)
    chosen = ["worker.guarantee=at_least_once"]
    victim = pipeline.start_worker(
        settings=chosen, faults=["transaction.after_send_offsets=kill@1"], instance="one"
    )
    victim.wait_for_fault("transaction.after_send_offsets")
    assert victim.wait() == -signal.SIGKILL
    worker = pipeline.start_worker(settings=chosen, instance="one", until_caught_up=True)
    assert worker.wait() == 0, worker.log[-3000:]
    verdict = pipeline.verify()
    assert not verdict.lost
    assert verdict.duplicated
    assert pipeline.committed() == 3000


def test_a_topic_is_chosen_for_each_record(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline(topology=CHOSEN)
    pipeline.feed(100)
    pipeline.finish()
    doubled = [number_in(m) for m in pipeline.read(f"{pipeline.name}.doubled")]
    tripled = [number_in(m) for m in pipeline.read(f"{pipeline.name}.tripled")]
    assert sorted(doubled) == list(range(0, 100, 2))
    assert sorted(tripled) == list(range(1, 100, 2))


def test_keys_times_and_headers_reach_the_output(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline()
    producer = feeder(pipeline.bootstrap_servers)
    producer.produce(
        pipeline.source,
        b'{"n": 1}',
        b"key",
        timestamp=1_600_000_000_000,
        headers=[("a", b"1"), ("a", b"2"), ("empty", None)],
    )
    assert producer.flush(60) == 0
    pipeline.finish()
    [output] = pipeline.read(f"{pipeline.name}.doubled")
    assert output.key() == b"key"
    assert output.timestamp()[1] == 1_600_000_000_000
    assert output.headers() == [("a", b"1"), ("a", b"2"), ("empty", None)]
