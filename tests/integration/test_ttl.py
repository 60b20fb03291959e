"""Values that expire, on a real broker, through a crash and the loss of the stores."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from tests.conftest import KafkaService
from tests.support.applications.pipeline import Pipeline, number_in
from tests.support.processes.programs import REPOSITORY

TTL_MS = 100
TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  counted:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:fifties", key: string}
      - count: {ttl: 100ms}
    to: {topic: NAME.counted}
"""


@pytest.fixture
def pipeline(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Pipeline]:
    name = unique_name("ttl")
    servers = kafka.bootstrap_servers
    pipeline = Pipeline(
        servers, name, tmp_path, topology=TOPOLOGY, partitions=1, outputs={"counted": 1}
    )
    command(pipeline, "apply")
    yield pipeline
    pipeline.stop()


def command(pipeline: Pipeline, *words: str) -> bytes:
    """Run a command on the topology and return what it prints."""
    place = ["--set", f"state.directory={pipeline.directory / 'state'}"]
    server = ["--set", f"kafka.bootstrap_servers={pipeline.bootstrap_servers}"]
    line = [*words[:2], str(pipeline.topology_file), *words[2:], *server, *place]
    done = subprocess.run(
        [sys.executable, "-m", "eosframework", *line],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    return done.stdout


def expected(pipeline: Pipeline) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Return what has to go out, and what is left, by the input and the rules."""
    latest: dict[str, tuple[int, int]] = {}
    gone: list[tuple[str, int]] = []
    time = 0
    for message in pipeline.read(pipeline.source):
        key, time = str(number_in(message) // 50 % 10), message.timestamp()[1]
        count, last = latest.get(key, (0, time))
        latest[key] = (1 if time > last + TTL_MS else count + 1), time
        gone.append((key, latest[key][0]))
    return gone, {key: count for key, (count, last) in latest.items() if time <= last + TTL_MS}


def scanned(pipeline: Pipeline, *where: str) -> dict[str, int]:
    report = command(pipeline, "state", "scan", "counted.count", "--json", *where)
    return {row["key"]: row["value"] for row in orjson.loads(report)["found"]}


def test_what_expires_begins_anew_through_a_crash_and_the_loss_of_the_stores(
    pipeline: Pipeline,
) -> None:
    keeping = [f"state.directory={pipeline.directory / 'state'}"]
    pipeline.feed(1020)
    killed = pipeline.start_worker(
        instance="one", settings=keeping, faults=["state.before_write=kill@1"]
    )
    assert killed.wait() == -9
    after_crash = pipeline.start_worker(instance="one", settings=keeping, until_caught_up=True)
    assert after_crash.wait() == 0, after_crash.log[-3000:]
    shutil.rmtree(pipeline.directory / "state")
    pipeline.feed(510)
    without_stores = pipeline.start_worker(instance="one", settings=keeping, until_caught_up=True)
    assert without_stores.wait() == 0, without_stores.log[-3000:]

    gone, left = expected(pipeline)
    found = [
        ((message.key() or b"").decode(), int.from_bytes(message.value() or b"", "big"))
        for message in pipeline.read(f"{pipeline.name}.counted")
    ]
    assert found == gone
    assert max(count for _, count in gone) == 50, "each key comes again when it has expired"
    assert len(left) == 3
    assert scanned(pipeline) == left
    assert scanned(pipeline, "--from-changelog") == left
