"""A batch that unpacks to more than a client takes is named, and can be passed over."""

from __future__ import annotations

import json
import resource
import shlex
import signal
from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.processes.commands import here
from tests.support.processes.programs import megabytes
from tests.support.servers.topics import configure

TOPOLOGY = """\
application: NAME
sources:
  values: {topic: NAME.in, key: bytes, value: bytes}
streams:
  copied:
    from: values
    on_error: {dead_letter: NAME.dead}
    to: [{topic: NAME.copied, value: bytes}]
"""
UNPACKED_BYTES = 3_000_000
SETTINGS = [
    "kafka.properties.fetch.max.bytes=1000000",
    "kafka.properties.max.partition.fetch.bytes=1000000",
    "kafka.properties.message.max.bytes=1000000",
    "kafka.properties.receive.message.max.bytes=1001000",
]
"""A hundredth of the defaults, so that the batch is small."""


def test_a_batch_that_unpacks_to_too_much_is_named_and_passed_over(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline(topology=TOPOLOGY, outputs={"copied": 1}, partitions=1)
    source = f"{pipeline.name}.in"
    producer = Producer(
        {
            "bootstrap.servers": pipeline.bootstrap_servers,
            "compression.type": "zstd",
            "message.max.bytes": 2 * UNPACKED_BYTES,
        }
    )
    for value in (b"first", bytes(UNPACKED_BYTES), b"last"):
        producer.produce(source, value, b"k")
        assert producer.flush(60) == 0
    worker = pipeline.start_worker(until_caught_up=True, settings=SETTINGS)
    assert worker.wait() == 1, worker.log[-3000:]
    assert f"the batch at {source}[0]@1 cannot be read" in worker.log, worker.log[-3000:]
    assert "receive.message.max.bytes" in worker.log
    server = f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    moved = here("positions", "set", str(pipeline.topology_file), f"{source}[0]=2", "--set", server)
    assert moved.exit_code == 0, moved.err
    again = pipeline.start_worker(until_caught_up=True, settings=SETTINGS)
    assert again.wait() == 0, again.log[-3000:]
    copied = [message.value() for message in pipeline.read(f"{pipeline.name}.copied")]
    assert copied == [b"first", b"last"]


CODECS = ("gzip", "lz4", "snappy")
"""librdkafka unpacks their batches without a limit."""
BOMB_BYTES = 12_000_000


def test_batches_that_would_exhaust_a_workers_memory_are_named_and_passed_over(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline(topology=TOPOLOGY, outputs={"copied": 1}, partitions=1)
    source, server = f"{pipeline.name}.in", f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": pipeline.bootstrap_servers,
                "compression.type": codec,
                "message.max.bytes": 2 * BOMB_BYTES,
            }
        )
        for value in (codec.encode(), bytes(BOMB_BYTES)):
            producer.produce(source, value, b"k")
            assert producer.flush(60) == 0
    file, over = str(pipeline.topology_file), ("--above-megabytes", "10", "--set", server)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = here("positions", "check", file, "--json", *over)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.exit_code == 1, found.err
    batches = json.loads(found.out)["batches"]
    places = [(each["codec"], each["first_offset"], each["next_offset"]) for each in batches]
    assert places == [("gzip", 1, 2), ("lz4", 3, 4), ("snappy", 5, 6)]
    assert all(BOMB_BYTES < each["unpacked_bytes"] < 1.01 * BOMB_BYTES for each in batches)
    assert grown * 1024 < BOMB_BYTES, "a batch was unpacked into memory"
    words: list[str] = []
    for offset in (0, 2, 4):
        moved = here("positions", "set", file, f"{source}[0]={offset}", "--set", server)
        assert moved.exit_code == 0, moved.err
        line = here("positions", "check", file, *over).out.splitlines()[0]
        words = shlex.split(line.partition("run: eosframework ")[2])
        assert words == ["positions", "set", file, f"{source}[0]={offset + 2}"]
    assert here(*words, "--set", server).exit_code == 0
    said = here("positions", "check", file, *over)
    assert (said.exit_code, said.out.partition(" at ")[0]) == (0, "no batch")


LARGE_BOMB_BYTES = 200_000_000
LEFT_MEGABYTES = 100
"""Memory that a worker can have besides what it has before it fetches."""


def peak_megabytes(worker: WorkerProcess) -> int:
    """Return the most memory that a worker had until its end."""
    most = 0

    def ended() -> bool:
        nonlocal most
        with suppress(OSError, ValueError):
            most = max(most, megabytes(worker.process.pid, "VmHWM"))
        return worker.process.poll() is not None

    wait_until(ended, "the worker's end")
    return most


@pytest.mark.exhaustive
@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_fits_into_no_memory_ends_the_worker_and_is_named_by_a_later_start(
    make_pipeline: Callable[..., Pipeline], codec: str
) -> None:
    pipeline = make_pipeline(topology=TOPOLOGY, outputs={"copied": 1}, partitions=1)
    source, server = f"{pipeline.name}.in", f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"
    home = {"XDG_STATE_HOME": str(pipeline.directory / "host")}
    # A worker before its first fetch: threads are counted by the size of their stacks.
    idle = pipeline.start_worker(environment=home)
    idle.wait_for_event("task_assigned")
    limit_bytes = (megabytes(idle.process.pid, "VmData") + LEFT_MEGABYTES) * 2**20
    idle_megabytes = megabytes(idle.process.pid, "VmRSS")
    idle.end()
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
    configure(admin, source, {"max.message.bytes": "20000000"})
    producer = Producer(
        {
            "bootstrap.servers": pipeline.bootstrap_servers,
            "compression.type": codec,
            "message.max.bytes": 300_000_000,
            "queue.buffering.max.kbytes": 400_000,
        }
    )
    for value in (b"first", bytes(LARGE_BOMB_BYTES), b"last"):
        producer.produce(source, value, b"k")
        assert producer.flush(120) == 0
    limited = {**home, "EOS_TEST_DATA_BYTES": str(limit_bytes)}
    settings = ["worker.session_timeout_seconds=6"]
    for _ in range(2):
        ended = pipeline.start_worker(until_caught_up=True, environment=limited, settings=settings)
        assert peak_megabytes(ended) < idle_megabytes + LEFT_MEGABYTES
        assert ended.wait() == -signal.SIGABRT, ended.log[-3000:]
    refused = pipeline.start_worker(until_caught_up=True, environment=limited, settings=settings)
    assert refused.wait() == 2, refused.log[-3000:]
    assert f"{source}[0]@1: a {codec} batch of" in refused.log, refused.log[-3000:]
    assert f"positions set APP '{source}[0]=2'" in refused.log
    # It stays refused: nothing was cured.
    again = pipeline.start_worker(until_caught_up=True, environment=limited, settings=settings)
    assert again.wait() == 2, again.log[-3000:]
    words = ("positions", "set", str(pipeline.topology_file), f"{source}[0]=2", "--set", server)
    # Those that were aborted are members until their session times out.
    wait_until(lambda: here(*words).exit_code == 0, "the position being set")
    last = pipeline.start_worker(until_caught_up=True, environment=limited, settings=settings)
    assert last.wait() == 0, last.log[-3000:]
    copied = [message.value() for message in pipeline.read(f"{pipeline.name}.copied")]
    assert copied[-1] == b"last"
