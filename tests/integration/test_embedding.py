"""A worker in a script, in a thread of a service and in a notebook's way, on a real broker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

import eosframework
from eosframework.errors import (
    ConfigurationError,
    KeyElsewhere,
    RecordFailed,
    StartRefused,
    StoreNotReady,
)
from tests.conftest import KafkaService
from tests.support.applications.pipeline import Pipeline
from tests.support.processes.commands import here
from tests.support.processes.programs import REPOSITORY
from tests.support.processes.waiting import PATIENCE_SECONDS, wait_until

PAGE = REPOSITORY / "docs" / "howto" / "embed.md"

SCRIPT = """
import eosframework
print(eosframework.run({topology!r}, overrides={overrides!r}))
"""

ENDS_WITHOUT_STOP = """
import time, eosframework
worker = eosframework.start({topology!r}, overrides={overrides!r})
while worker.status().records == 0:
    time.sleep(0.05)
print("the main thread ends", flush=True)
"""

TAKES_THE_SIGNAL = """
import signal, threading, eosframework
def take(value):
    if value["n"] == 7:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    return value
app = eosframework.Topology({name!r})
app.stream({name!r} + ".in", value=dict).map_values(take).to({name!r} + ".doubled")
print(eosframework.run(app, overrides={overrides!r}))
"""

HANGS = """
import time, eosframework
def hang(value):
    print("hangs", flush=True)
    time.sleep(600)
app = eosframework.Topology({name!r})
app.stream({name!r} + ".in", value=dict).map_values(hang).to({name!r} + ".doubled")
eosframework.run(app, overrides={overrides!r})
"""


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """A program's logs are configured once; that of the tests is not the programs'."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def pipeline(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Pipeline]:
    name = unique_name("embed")
    pipeline = Pipeline(kafka.bootstrap_servers, name, tmp_path / name)
    yield pipeline
    pipeline.stop()


def overrides(pipeline: Pipeline, **more: object) -> dict[str, object]:
    return {
        "kafka.bootstrap_servers": pipeline.bootstrap_servers,
        "worker.instance": f"{pipeline.name}.embedded",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


@pytest.fixture
def script(pipeline: Pipeline) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a script of the pipeline in an interpreter of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(text: str, **more: object) -> subprocess.Popen[str]:
        text = text.format(
            topology=str(pipeline.topology_file),
            name=pipeline.name,
            overrides=overrides(pipeline, **more),
        )
        process = subprocess.Popen(
            [sys.executable, "-c", text],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def assert_exactly_once(pipeline: Pipeline) -> None:
    pipeline.finish(instance="embedded")
    verdict = pipeline.verify()
    assert verdict.clean, verdict


def test_a_service_starts_watches_and_stops_a_worker(pipeline: Pipeline) -> None:
    """From a thread that is not the main one, as in a web server."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen: list[eosframework.WorkerStatus] = []

    def service() -> None:
        app = str(pipeline.topology_file)
        with eosframework.start(app, overrides=overrides(pipeline)) as worker:
            seen.append(worker.status())
            wait_until(lambda: worker.status().records == 5000, "all records")
            wait_until(lambda: worker.status().lag == 0, "no lag")
            wait_until(lambda: len(worker.status().tasks) == 4, "the tasks")
            seen.append(worker.status())
            assert not worker.wait(timeout_seconds=0)
        seen.append(worker.status())

    pipeline.feed(5000)
    thread = threading.Thread(target=service)
    thread.start()
    thread.join(2 * PATIENCE_SECONDS)
    assert [status.state for status in seen] == ["running", "running", "stopped"]
    assert set(seen[1].tasks.values()) == {"running"}
    assert (seen[2].records, seen[2].error, seen[2].tasks) == (5000, None, {})
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert pipeline.committed() == 5000
    assert_exactly_once(pipeline)


def test_a_cell_runs_until_caught_up_and_again_from_there(pipeline: Pipeline) -> None:
    app = str(pipeline.topology_file)
    for _ in range(2):
        pipeline.feed(500)
        status = eosframework.run(app, overrides=overrides(pipeline), until_caught_up=True)
        assert (status.state, status.records) == ("stopped", 500)
    verdict = pipeline.verify()
    assert verdict.clean, verdict


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive),
        signal.SIGTERM,
        pytest.param(signal.SIGKILL, marks=pytest.mark.exhaustive),
    ],
)
def test_a_signal_stops_a_script_in_order(
    pipeline: Pipeline, script: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    pipeline.feed(20_000)
    process = script(SCRIPT, worker__batch_records=100)
    wait_until(lambda: pipeline.committed() > 0, "a first commit")
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    if number is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 0, err
        assert out.startswith(f"{pipeline.name}: stopped, ")
        assert number.name in err
        assert pipeline.nothing_is_open()
    assert "Traceback" not in err
    assert_exactly_once(pipeline)


@pytest.mark.exhaustive
def test_a_signal_that_reaches_another_thread_stops_a_script_too(
    pipeline: Pipeline, script: Callable[..., subprocess.Popen[str]]
) -> None:
    """A kernel may choose any thread of a process, and nothing wakes the main thread then."""
    pipeline.feed(20)
    process = script(TAKES_THE_SIGNAL)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, err
    assert out.startswith(f"{pipeline.name}: stopped, ")
    assert "SIGTERM" in err


@pytest.mark.exhaustive
def test_a_second_ctrl_c_interrupts_a_script_whose_worker_does_not_stop(
    pipeline: Pipeline, script: Callable[..., subprocess.Popen[str]]
) -> None:
    pipeline.feed(10)
    process = script(HANGS, worker__stop_deadline_seconds=1)
    assert process.stdout is not None
    assert process.stdout.readline() == "hangs\n"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "KeyboardInterrupt" in err
    assert "did not end within worker.stop_deadline_seconds=1" in err
    assert pipeline.committed() == 0


@pytest.mark.exhaustive
def test_a_program_that_ends_stops_its_worker(
    pipeline: Pipeline, script: Callable[..., subprocess.Popen[str]]
) -> None:
    pipeline.feed(5000)
    process = script(ENDS_WITHOUT_STOP)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (0, "the main thread ends\n"), err
    assert "task_closed" in err
    assert pipeline.nothing_is_open()
    assert_exactly_once(pipeline)


def test_a_record_that_fails_is_an_exception_of_wait(pipeline: Pipeline) -> None:
    def refuse(value: dict[str, int]) -> dict[str, int]:
        if value["n"] == 7:
            raise ValueError("seven")
        return value

    app = eosframework.Topology(pipeline.name)
    app.stream(pipeline.source, value=dict).map_values(refuse).to(f"{pipeline.name}.doubled")
    pipeline.feed(20)
    worker = eosframework.start(app, overrides=overrides(pipeline))
    for _ in range(2):
        with pytest.raises(RecordFailed, match="seven") as raised:
            worker.wait(PATIENCE_SECONDS)
        assert raised.value.exit_code == 1
    status = worker.status()
    assert (status.state, status.error) == ("failed", raised.value)
    worker.stop()


def test_what_cannot_start_is_an_exception_of_start(pipeline: Pipeline) -> None:
    app = eosframework.Topology(pipeline.name)
    app.stream(f"{pipeline.name}.missing").to(f"{pipeline.name}.doubled")
    with pytest.raises(StartRefused, match="missing") as raised:
        eosframework.start(app, overrides=overrides(pipeline))
    assert raised.value.exit_code == 2
    assert not [t for t in threading.enumerate() if pipeline.name in t.name]


def test_two_workers_of_one_program_do_not_share_an_instance(pipeline: Pipeline) -> None:
    app = str(pipeline.topology_file)
    with (
        eosframework.start(app, overrides=overrides(pipeline)),
        pytest.raises(StartRefused, match="runs on this host already"),
    ):
        eosframework.start(app, overrides=overrides(pipeline))


COUNTED = """
import eosframework
app = eosframework.Topology({name!r})
numbers = app.stream({name!r} + ".in", value=dict)
by_rest = numbers.group_by(lambda record: str(record.value["n"] % 20), key=str)
by_rest.count(store="counts").to({name!r} + ".doubled")
by_rest.window(eosframework.tumbling("1h")).count(store="hourly")
"""


def test_tables_are_read_in_the_process_that_has_them(pipeline: Pipeline, tmp_path: Path) -> None:
    app = tmp_path / "counted.py"
    app.write_text(COUNTED.format(name=pipeline.name))
    done = here("apply", str(app), "--bootstrap-server", pipeline.bootstrap_servers)
    assert done.exit_code == 0, done.err
    pipeline.feed(1000)
    keys = {str(n) for n in range(20)}

    def scanned(worker: eosframework.RunningWorker) -> dict[str, int]:
        try:
            return dict(worker.scan("counts"))
        except StoreNotReady:
            return {}

    with eosframework.start(str(app), overrides=overrides(pipeline)) as first:
        wait_until(lambda: scanned(first) == dict.fromkeys(keys, 50), "all counts")
        assert first.get("counts", "7") == 50
        assert first.get("counts", "no key") is None
        (window,) = first.get("hourly", "7")
        assert (window.value, window.end - window.start) == (50, 3_600_000)
        assert {key for key, _ in first.scan("counts", "1", "2")} == {"1", *map(str, range(10, 20))}
        with pytest.raises(ConfigurationError, match="its stores are counts, hourly"):
            first.get("count", "7")
        with pytest.raises(ConfigurationError, match="7 is not a key of store 'counts'"):
            first.get("counts", 7)
        listening = {"worker.http_address": "127.0.0.1:0"}
        other = {"worker.instance": f"{pipeline.name}.other", **listening}
        with eosframework.start(str(app), overrides=overrides(pipeline) | other) as second:
            wait_until(lambda: bool(scanned(second)), "a second owner")
            wait_until(lambda: {*scanned(first), *scanned(second)} == keys, "all keys once")
            own, others = scanned(first), scanned(second)
            assert not own.keys() & others.keys()
            for key in keys:
                has, lacks = (first, second) if key in own else (second, first)
                assert has.get("counts", key) == 50
                with pytest.raises(KeyElsewhere, match="ask the worker that has it") as elsewhere:
                    lacks.get("counts", key)
                # Only the second one knows its group, because it answers over HTTP.
                assert ("at an unknown address" in str(elsewhere.value)) is (lacks is second)
    with pytest.raises(StoreNotReady, match="has ended"):
        first.get("counts", "7")


def test_the_page_runs_as_it_stands(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique_name("shop")
    page = PAGE.read_text(encoding="utf-8").replace('"shop', f'"{name}')
    files = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL))
    assert files.keys() == {"script.py", "service.py"}
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    server = ["--bootstrap-server", kafka.bootstrap_servers]
    app = str(tmp_path / "script.py")
    assert here("topics", "create", f"{name}.orders", *server).exit_code == 0
    done = here("apply", app, *server)
    assert done.exit_code == 0, done.err
    produce(kafka.bootstrap_servers, f"{name}.orders")
    own = {**os.environ, "EOS_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    own["PYTHONPATH"] = str(REPOSITORY)
    printed: list[str] = []
    for file in ("script.py", "service.py"):
        command = [sys.executable, file]
        done = subprocess.run(
            command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
        produce(kafka.bootstrap_servers, f"{name}.orders")
    assert printed[0] == f"{name}: stopped, 0 tasks, 3 records, lag 0\n"
    assert printed[1].endswith("3 records, lag 0\nstopped\n")


def produce(servers: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    for amount in (50, 150, 250):
        producer.produce(topic, f'{{"amount": {amount}}}'.encode(), f"{amount}".encode())
    assert producer.flush(60) == 0
