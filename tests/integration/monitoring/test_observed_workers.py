"""What a worker tells about itself is what Kafka holds, also after aborts and fences."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.processes.commands import Folder
from tests.support.verifiers.asked import (
    ANY_PORT,
    Scraped,
    addresses_of,
    get_json,
    not_ready,
    wait_until_ready,
)
from tests.support.verifiers.messages import position_of

LISTENING = f"worker.http_address={ANY_PORT}"

INFLATED = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  copied:
    from: numbers
    on_error: {dead_letter: NAME.dead}
    steps: [{map_values: "tests.support.applications.functions:inflate"}]
    to: [{topic: NAME.doubled, value: json}]
"""
"""Its output for record 13 is larger than the topic takes, which aborts a transaction."""


HANGING = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:hang_in_c_at_thirteen"}]
    to: [{topic: NAME.doubled, value: json}]
"""


def fence(worker: WorkerProcess, bootstrap_servers: str) -> None:
    """Take the id of a worker's first task away, as a second application of that name would."""
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": worker.ids()[0]}
    )
    producer.init_transactions(60)


@contextmanager
def open_transaction(pipeline: Pipeline, partition: int) -> Iterator[Callable[[], None]]:
    """Write a record into the input and leave its transaction open, until `commit` is called."""
    producer = Producer(
        {
            "bootstrap.servers": pipeline.bootstrap_servers,
            "transactional.id": f"{pipeline.name}.upstream",
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(pipeline.source, b'{"n": 5}', b"5", partition)
    assert producer.flush(60) == 0
    yield lambda: producer.commit_transaction(60)


@pytest.mark.slow
def test_a_worker_tells_what_kafka_holds_also_after_an_abort_and_a_fence(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline(
        topology=INFLATED, partitions=2, small_outputs=True, outputs={"doubled": 1}
    )
    pipeline.feed(100)
    # A fenced task waits for two heartbeats, which gives the test time to see it.
    worker = pipeline.start_worker(settings=[LISTENING, "worker.heartbeat_interval_seconds=5"])
    addresses = addresses_of(worker)

    def read() -> float:
        return Scraped(addresses).sum("records_read_total", topic=pipeline.source)

    wait_until(lambda: read() == 100, "100 records read")
    before = Scraped(addresses)
    assert before.sum("transactions_total", outcome="aborted") >= 1
    assert before.sum("dead_letters_total") >= 1
    assert before.sum("fences_total") == 0

    fence(worker, pipeline.bootstrap_servers)
    pipeline.feed(100)
    wait_until(lambda: not_ready(addresses[0]) == ["fenced"], "readiness lost to the fence")
    wait_until_ready(addresses[0])
    assert Scraped(addresses).sum("fences_total") >= 1
    wait_until(lambda: read() == pipeline.fed, "all records read")
    wait_until(lambda: Scraped(addresses).sum("lag_records") == 0, "no lag")
    found = Scraped(addresses)
    for topic in (f"{pipeline.name}.doubled", f"{pipeline.name}.dead"):
        assert found.sum("records_written_total", topic=topic) == len(pipeline.read(topic))
    assert found.sum("records_read_total") == pipeline.fed
    commits = found.sum("transactions_total", outcome="committed")
    assert commits >= found.sum("transaction_records_count") > 0
    assert found.sum("transaction_records_sum") == pipeline.fed
    assert found.sum("commit_seconds_count") > 0
    wait_until(lambda: kinds_of_clients(addresses) == {"consumer", "producer"}, "statistics")
    assert found.sum("tasks", state="running") == 2
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def markers(pipeline: Pipeline, partition: int) -> int:
    """How many offsets lie behind the last record of an input partition."""
    records = [m for m in pipeline.read(pipeline.source) if m.partition() == partition]
    consumer = Consumer({"bootstrap.servers": pipeline.bootstrap_servers, "group.id": "ends"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(pipeline.source, partition), 60)
    finally:
        consumer.close()
    return end - position_of(records[-1])[2] - 1


def kinds_of_clients(addresses: list[str]) -> set[str]:
    """Of which kinds of clients there are statistics; those of producers take an interval."""
    return {labels["client"] for labels in Scraped(addresses).labels("client_disconnects_total")}


def test_processes_of_one_worker_add_up(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline()
    pipeline.feed(400)
    worker = pipeline.start_worker("--processes", "2", settings=[LISTENING])
    addresses = addresses_of(worker, 2)

    def total(name: str, **labels: str) -> float:
        return Scraped(addresses).sum(name, **labels)

    wait_until(lambda: total("tasks", state="running") == 4, "four tasks")
    wait_until(lambda: total("records_read_total") == 400, "all records read")
    doubled = f"{pipeline.name}.doubled"
    assert total("records_written_total", topic=doubled) == len(pipeline.read(doubled))
    names = {labels["instance_name"] for labels in Scraped(addresses).labels("info")}
    assert len(names) == 2
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_worker_behind_an_open_transaction_is_not_ready_and_says_where(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline(partitions=2)
    pipeline.feed(10)
    worker = pipeline.start_worker(
        instance="one", settings=[LISTENING, "worker.transaction_timeout_seconds=5"]
    )
    [address] = addresses_of(worker)
    wait_until_ready(address)
    wait_until(lambda: Scraped([address]).sum("records_read_total") == 10, "10 records committed")
    with open_transaction(pipeline, 1) as commit:
        wait_until(lambda: not_ready(address) == ["held_back"], "readiness lost")
        _, status = get_json(address, "/status")
        assert f"{pipeline.source}[1]" in status["reasons"][0]
        assert f"{pipeline.source}[0]" not in status["reasons"][0]
        assert Scraped([address]).sum("held_back_records") == 1
        assert Scraped([address]).sum("ready") == 0
        assert get_json(address, "/livez")[0] == 200
        shown = Folder(pipeline.directory, pipeline.bootstrap_servers).run(
            "status", str(pipeline.topology_file), "--ask", address
        )
        assert shown.exit_code == 0, shown.err
        assert f"{pipeline.name}: 1 member, 2 tasks, lag 0\n" in shown.out
        assert f"doubled[1]  {pipeline.name}.one, running, lag 0, 1 held back" in shown.out
        assert f"{address}: not ready: {pipeline.source}[1] is held back" in shown.out
        commit()
    wait_until_ready(address)
    wait_until(lambda: Scraped([address]).sum("records_read_total") == 11, "the held record")
    wait_until(lambda: pipeline.committed() == 12, "the record, and the marker after it")
    assert markers(pipeline, 1) == 1
    wait_until(lambda: Scraped([address]).sum("lag_records") == 0, "no lag behind the marker")
    shown = Folder(pipeline.directory, pipeline.bootstrap_servers).run(
        "status", str(pipeline.topology_file)
    )
    assert f"{pipeline.name}: 1 member, 2 tasks, lag 0\n" in shown.out
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_worker_that_hangs_in_a_function_is_not_live_before_it_ends_itself(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    """A probe sees the place; without a probe the watchdog ends the process all the same."""
    pipeline = make_pipeline(topology=HANGING, partitions=1, outputs={"doubled": 2})
    pipeline.feed(20)
    worker = pipeline.start_worker(
        settings=[LISTENING, "worker.transaction_timeout_seconds=3"],
        environment={"EOS_TEST_TURN_SECONDS": "8"},
    )
    [address] = addresses_of(worker)
    wait_until(lambda: not_ready(address) == ["stuck"], "not ready")
    status, live = get_json(address, "/livez")
    assert (status, live["limit_seconds"]) == (200, 8), "later than not ready"
    wait_until(lambda: get_json(address, "/livez")[0] == 503, "not live")
    assert worker.process.poll() is None, "a probe comes before the watchdog"
    _, dead = get_json(address, "/livez")
    assert dead["turn_seconds_ago"] > 8
    [reason] = dead["reasons"]
    assert reason["code"] == "stuck"
    assert (
        "waits in tests.support.applications.functions.hang_in_c_at_thirteen" in reason["message"]
    )
    assert worker.wait() == 1
    [stuck] = worker.events("worker_stuck")
    assert "hang_in_c_at_thirteen" in str(stuck["waits_in"])
    assert "stuck for 16 s" in str(stuck["reason"])
