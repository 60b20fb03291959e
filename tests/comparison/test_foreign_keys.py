"""Joins by foreign keys end as those of Kafka Streams, and give no pair that never was true."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from benchmarks.contestants.streams import PROGRAMS, compile_programs
from benchmarks.contestants.streams_jars import class_path
from eosframework.embedded.jars import find_java
from tests.comparison import foreign
from tests.comparison.foreign import FIELDS, KINDS, Value
from tests.conftest import TOLD, KafkaService
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import KEEP, read_committed
from tests.support.processes.programs import FRAMEWORK, fork_program
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

FLIGHTS, CHANGES = 2000, 3000
PARTITIONS = {"flights": 3, "planes": 2, "airlines": 2, "airports": 2}
OUTPUTS = [f"{name}.{how}" for name in FIELDS for how in KINDS]
PATIENCE_SECONDS = 900


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_joins_by_foreign_keys_end_as_those_of_kafka_streams(
    kafka: KafkaService,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    seed: int,
) -> None:
    servers, name = kafka.bootstrap_servers, unique_name("foreign")
    topics = [NewTopic(f"{name}.in.{t}", n, 1, config=KEEP) for t, n in PARTITIONS.items()]
    for side in ("ours", "theirs"):
        topics += [NewTopic(f"{name}.{side}.{out}", 3, 1, config=KEEP) for out in OUTPUTS]
    create_topics(AdminClient({"bootstrap.servers": servers}), topics)
    rows = feed(servers, name, seed)
    last = {topic: {key: values[-1] for key, values in rows[topic].items()} for topic in rows}
    tables = {
        topic: {key: row for key, row in found.items() if row is not None}
        for topic, found in last.items()
    }
    expected = {
        f"{right}.{how}": foreign.joined(tables, right, how) for right in FIELDS for how in KINDS
    }
    began = time.monotonic()
    run_ours(servers, name, tmp_path)
    ours_seconds = time.monotonic() - began
    for out in OUTPUTS:
        results = read(servers, f"{name}.ours.{out}")
        assert final(results) == expected[out], out
        assert [one for one in results if not was_true(rows, out, *one)] == []
    began = time.monotonic()
    run_theirs(servers, name, tmp_path, expected)
    theirs_seconds = time.monotonic() - began
    told = f"{ours_seconds:.0f} s, Kafka Streams {theirs_seconds:.0f} s"
    record_property(TOLD, told)


Rows = dict[str, dict[str, list[Value | None]]]
"""By topic and key, all rows in their order."""


def feed(servers: str, name: str, seed: int) -> Rows:
    producer = feeder(servers, partitioner="murmur2_random")
    rows = defaultdict[str, Any](lambda: defaultdict(list))
    history = foreign.history(FLIGHTS, CHANGES, random.Random(seed))
    for at, (topic, key, value) in enumerate(history, 1_700_000_000_000):
        data = None if value is None else json.dumps(value).encode()
        producer.produce(f"{name}.in.{topic}", data, key, timestamp=at)
        producer.poll(0)
        rows[topic][key].append(value)
    assert producer.flush(120) == 0
    return rows


def was_true(rows: Rows, out: str, key: str, value: Value | None) -> bool:
    """Return whether both rows of a result existed, with the foreign key of the left one."""
    if value is None:
        return True
    name = out.partition(".")[0]
    left, right = value["left"], value["right"]
    known: list[Value | None] = [None, *rows[name].get(f"{left[FIELDS[name]]}", [])]
    return left in rows["flights"][key] and right in known


def read(servers: str, topic: str) -> list[tuple[str, Value | None]]:
    return [
        ((m.key() or b"").decode(), None if (value := m.value()) is None else json.loads(value))
        for m in read_committed(servers, topic)
    ]


def final(results: list[tuple[str, Value | None]]) -> dict[str, Value]:
    return {key: value for key, value in dict(results).items() if value is not None}


def run_ours(servers: str, name: str, directory: Path) -> None:
    chosen = [
        "--set",
        f"kafka.bootstrap_servers={servers}",
        "--set",
        f"state.directory={directory}",
    ]
    for command in (["apply"], ["run-worker", "--until-caught-up"]):
        log = directory / f"{command[0]}.log"
        arguments = [command[0], f"{foreign.__file__}:topology", *command[1:], *chosen]
        program = fork_program(FRAMEWORK, arguments, environment={"COMPARED_NAME": name}, out=log)
        code = program.wait(PATIENCE_SECONDS)
        assert code == 0, log.read_text(errors="replace")[-3000:]


def run_theirs(
    servers: str, name: str, directory: Path, expected: dict[str, dict[str, Value]]
) -> None:
    """Run java/Foreign.java until its results are those that are expected."""
    classes = directory / "classes"
    classes.mkdir()
    java = Path(__file__).with_name("java")
    compile_programs(classes, PROGRAMS / "Json.java", *java.glob("*.java"))
    log = directory / "theirs.log"
    arguments = [
        *(str(find_java()), "-Xmx1g", "-XX:-UsePerfData", f"-Djava.io.tmpdir={classes}"),
        *("-cp", f"{classes}:{class_path()}", "Foreign"),
        *(servers, name, str(directory / "streams")),
    ]
    with log.open("wb") as out:
        program = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT)

    def is_done() -> bool:
        assert program.poll() is None, log.read_text(errors="replace")[-3000:]
        found = {out: final(read(servers, f"{name}.theirs.{out}")) for out in OUTPUTS}
        return found == expected

    try:
        wait_until(is_done, "Kafka Streams to give the same results", PATIENCE_SECONDS)
    finally:
        program.kill()
        program.wait()
