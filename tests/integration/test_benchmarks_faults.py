"""`python -m benchmarks faults` strikes for real, and its judge catches a loop that is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson
import pytest

from tests.support.processes.programs import RunningProgram, start_command

LONGEST_SECONDS = 600

WRONG_LOOP = """\
import os
import time

from confluent_kafka import Consumer, Producer

server = {"bootstrap.servers": os.environ["FAULTS_BOOTSTRAP_SERVERS"]}
group = {"group.id": os.environ["FAULTS_GROUP"], "auto.offset.reset": "earliest"}
session = {"session.timeout.ms": os.environ["FAULTS_SESSION_TIMEOUT_MS"]}
consumer = Consumer({**server, **group, **session, "enable.auto.commit": False})
consumer.subscribe([os.environ["FAULTS_INPUT"]])
producer = Producer({**server, "linger.ms": 0})
committed = time.monotonic()
while True:
    message = consumer.poll(0.1)
    if message is None or message.error():
        continue
    for output in ("FAULTS_OUTPUT", "FAULTS_SECOND_OUTPUT"):
        producer.produce(os.environ[output], message.value(), message.key())
    producer.poll(0)
    if time.monotonic() - committed > 2:
        producer.flush()
        consumer.commit(asynchronous=False)
        committed = time.monotonic()
"""
"""Writes first and commits later, without a transaction: a kill doubles what lies between."""


def play(tmp_path: Path, *words: str) -> RunningProgram:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "benchmarks", "faults", "--rounds=1", *words]
    program = RunningProgram(start_command(command, out=log), log)
    try:
        program.wait(LONGEST_SECONDS)
    finally:
        program.process.terminate()
        program.process.wait()
    return program


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_kill_leaves_eosframework_clean_and_doubles_in_a_loop_without_transactions(
    tmp_path: Path,
) -> None:
    loop = tmp_path / "wrong_loop.py"
    loop.write_text(WRONG_LOOP)
    data = tmp_path / "faults.json"
    contestants = ["--contestant=eosframework", f"--contestant={loop}"]
    program = play(tmp_path, "--only=kill", *contestants, f"--data={data}")
    assert program.process.returncode == 1, program.log
    assert "did not fire" not in program.log
    trials = orjson.loads(data.read_bytes())["trials"]
    [ours] = trials["eosframework"]["kill"]["rounds"]
    [wrong] = trials["wrong_loop.py"]["kill"]["rounds"]
    assert not any(ours["verdict"].values()), ours
    assert ours["restarts"] == wrong["restarts"] == 3
    assert wrong["verdict"]["doubled"] > 0, wrong


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("raise SystemExit(4)", "ended with 4 at each of"),
        ("import time\ntime.sleep(600)", "wrote nothing to"),
    ],
)
def test_a_loop_that_ends_or_writes_nothing_gets_one_message(
    script: str, told: str, tmp_path: Path
) -> None:
    loop = tmp_path / "my_loop.py"
    loop.write_text(script)
    program = play(tmp_path, "--only=kill", f"--contestant={loop}", "--start-seconds=20")
    assert program.process.returncode == 1, program.log
    [line] = [line for line in program.log.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: my_loop.py ")
    assert told in line
    assert "Traceback" not in program.log


def test_a_loop_that_is_missing_is_refused_at_once(tmp_path: Path) -> None:
    program = play(tmp_path, "--contestant", "./missing.py")
    assert program.process.returncode == 2
    assert "./missing.py: there is no such file" in program.log
    assert "Traceback" not in program.log
