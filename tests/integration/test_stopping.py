"""Ctrl-C and SIGTERM at any time: what is complete is committed and nothing is left running."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.processes.commands import Folder
from tests.support.processes.programs import (
    framework_command,
    in_the_foreground,
    start_command,
)
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.verifiers.logged import logged

ANY_TOPOLOGY = """\
application: app
sources:
  numbers: {topic: in, key: bytes, value: json}
streams:
  copied:
    from: numbers
    to: [{topic: out, value: json}]
"""

LONG_SESSION = ["worker.session_timeout_seconds=600"]
"""Whoever does not hear that a member left waits for the end of its session: longer than a test."""


@pytest.fixture
def pipeline(kafka: Any, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[Pipeline]:
    name = unique_name("stop")
    made = Pipeline(kafka.bootstrap_servers, name, tmp_path / name)
    yield made
    made.stop()


def press_ctrl_c(worker: WorkerProcess) -> None:
    """What a terminal does: every process of the foreground group gets the signal."""
    os.killpg(worker.process.pid, signal.SIGINT)


def group_is_gone(worker: WorkerProcess) -> bool:
    try:
        os.killpg(worker.process.pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("processes", [pytest.param("1", marks=pytest.mark.exhaustive), "2"])
def test_ctrl_c_finishes_the_transactions_and_leaves_no_process(
    pipeline: Pipeline, processes: str
) -> None:
    pipeline.feed(20_000)
    worker = pipeline.start_worker("--processes", processes, own_group=True)
    worker.wait_for_event("task_assigned", 4)
    wait_until(lambda: pipeline.committed() > 0, "a first commit")
    press_ctrl_c(worker)
    assert worker.wait() == 0, worker.log[-3000:]
    assert "Traceback" not in worker.log
    wait_until(lambda: group_is_gone(worker), "the end of every process of the group")
    pipeline.finish()
    verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.parametrize("processes", ["1", "2"])
def test_ctrl_c_while_it_starts_is_no_failure(pipeline: Pipeline, processes: str) -> None:
    worker = pipeline.start_worker("--processes", processes, own_group=True)
    wait_until(lambda: loads_the_kafka_client(worker), "the loading of the Kafka client")
    press_ctrl_c(worker)
    assert worker.wait() == 0, worker.log[-3000:]
    assert "Traceback" not in worker.log
    wait_until(lambda: group_is_gone(worker), "the end of every process of the group")


def loads_the_kafka_client(worker: WorkerProcess) -> bool:
    """Tell whether the command is past its first imports; a child just forked is not yet it."""
    process = Path(f"/proc/{worker.process.pid}")
    is_worker = b"run-worker" in (process / "cmdline").read_bytes()
    return is_worker and "confluent_kafka" in (process / "maps").read_text()


def owned(worker: WorkerProcess) -> set[object]:
    """The tasks that a worker says it has."""
    tasks: set[object] = set()
    for event in logged(worker.log):
        match event.get("event"):
            case "task_assigned":
                tasks.add(event["task"])
            case "partitions_revoked" | "partitions_lost" | "task_closed":
                tasks.discard(event["task"])
            case _:
                pass
    return tasks


def test_a_worker_that_is_stopped_hands_its_partitions_over_at_once(pipeline: Pipeline) -> None:
    """Two terminals: two instances share the input; one stops, the other has all of it."""
    first = pipeline.start_worker(settings=LONG_SESSION)
    wait_until(lambda: len(owned(first)) == 4, "all partitions at the first worker")
    second = pipeline.start_worker(settings=LONG_SESSION)
    wait_until(
        lambda: (len(owned(first)), len(owned(second))) == (2, 2),
        "an equal share of partitions",
    )
    pipeline.feed(1000)
    wait_until(lambda: pipeline.committed() == 1000, "all records")
    second.signal(signal.SIGINT)
    wait_until(lambda: len(owned(first)) == 4, "all partitions back at the first worker")
    assert second.wait() == 0, second.log[-3000:]
    pipeline.feed(1000)
    wait_until(lambda: pipeline.committed() == 2000, "the rest of the records")
    verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.parametrize(
    "command",
    [
        "audit",
        pytest.param("plan", marks=pytest.mark.exhaustive),
        pytest.param("doctor", marks=pytest.mark.exhaustive),
        pytest.param("reset --yes", marks=pytest.mark.exhaustive),
    ],
)
def test_ctrl_c_in_a_command_that_does_one_thing_ends_it_with_130_and_one_line(
    tmp_path: Path, command: str
) -> None:
    """It waits for a broker that takes its connection and never answers."""
    topology = tmp_path / "app.yaml"
    topology.write_text(ANY_TOPOLOGY)
    out = tmp_path / "out"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_SECONDS)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        words = [*command.split(), str(topology), "--set", f"kafka.bootstrap_servers={address}"]
        process = start_command(framework_command(*words), out=out, prepare=in_the_foreground)
        connection, _ = server.accept()
        with connection:
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait(PATIENCE_SECONDS)
    lines = [line for line in out.read_text().splitlines() if not line.startswith("%")]
    assert (code, lines) == (130, ["error: interrupted; nothing was changed"])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "begun",
    [
        pytest.param("cluster.json", marks=pytest.mark.exhaustive),
        pytest.param("node-1/formatted", marks=pytest.mark.exhaustive),
        "node-1/pid",
    ],
)
def test_broker_up_interrupted_leaves_no_broker(tmp_path: Path, begun: str) -> None:
    folder = Folder(tmp_path)
    arguments = ("--data-dir", "kafka", "--json")
    process = folder.start(
        "broker", "up", "--port", "0", *arguments, log=tmp_path / "log", prepare=in_the_foreground
    )
    wait_until((tmp_path / "kafka" / begun).exists, begun)
    os.killpg(process.pid, signal.SIGINT)
    code, log = process.wait(PATIENCE_SECONDS), (tmp_path / "log").read_text()
    assert code == 130, log
    assert "error: interrupted; the nodes that were started are stopped again" in log
    assert "Traceback" not in log
    status = folder.run("broker", "status", *arguments).json
    assert [node["running"] for node in status["nodes"]] == [False]
    assert folder.run("broker", "up", *arguments).exit_code == 0
    assert folder.run("broker", "down", *arguments).exit_code == 0
