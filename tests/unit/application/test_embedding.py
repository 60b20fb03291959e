"""A worker in a program: its mistakes are exceptions, its arguments settings, its end in time."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import eosframework
from eosframework.application.composition.worker_run import WorkerStatus
from eosframework.config import load_settings
from eosframework.errors import ConfigurationError, TopologyError

SCRIPT = """
import signal, threading, time
from eosframework.process.watchdog import EmbeddedWatch

def work():
    with EmbeddedWatch(turn_seconds=60, stop_seconds={stop}, stop=asked.set) as watch:
        {work}
        print("stopped in order", flush=True)

asked = threading.Event()
before = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
threading.Thread(target=work).start()
time.sleep(0.3)
assert (signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)) == before
print("the main thread ends", flush=True)
"""


def ended(work: str, stop: float) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.format(work=work, stop=stop)
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_program_that_ends_stops_its_worker_first() -> None:
    done = ended("asked.wait()", stop=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["the main thread ends", "stopped in order"]


def test_a_worker_that_does_not_stop_does_not_keep_a_program_that_ended() -> None:
    done = ended("time.sleep(600)", stop=0.5)
    assert done.returncode == 1
    assert "did not end within worker.stop_deadline_seconds=0.5" in done.stderr


def test_a_stuck_thread_is_reported_once_and_ends_nothing() -> None:
    script = """
import threading, time
from eosframework.process.watchdog import EmbeddedWatch
with EmbeddedWatch(turn_seconds=0.3, stop_seconds=60, stop=print) as watch:
    time.sleep(1.5)
    watch.turn()
    assert watch.clock() > 1
print("it continues")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("worker_stuck") == 1
    assert "__main__.<module>, line 5" in done.stdout


def test_settings_come_from_arguments_over_variables_over_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("worker: {batch_records: 1, commit_interval_seconds: 1, start: latest}")
    monkeypatch.setenv("EOS_WORKER__BATCH_RECORDS", "2")
    monkeypatch.setenv("EOS_WORKER__COMMIT_INTERVAL_SECONDS", "2")
    overrides = {"worker.batch_records": 3, "kafka.properties.client.id": "shop"}
    settings = load_settings(file, overrides=overrides)
    worker = settings.worker
    assert (worker.batch_records, worker.commit_interval_seconds, worker.start) == (3, 2, "latest")
    assert settings.kafka.properties == {"client.id": "shop"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"worker.batch_record": 3}, "overrides: worker.batch_record: there is no such setting"),
        ({"worker.batch_records": 0}, "overrides: worker.batch_records=0: expected"),
        ({"worker": 3}, "overrides has 'worker', which is not SECTION.NAME"),
    ],
)
def test_a_wrong_argument_is_named(overrides: dict[str, object], message: str) -> None:
    app = eosframework.Topology("shop")
    app.stream("orders", name="orders").to("copies")
    with pytest.raises(ConfigurationError) as raised:
        eosframework.start(app, overrides=overrides)
    assert message in str(raised.value)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("call", [eosframework.run, eosframework.start])
def test_a_topology_that_does_not_load_is_an_exception_and_starts_no_thread(call: object) -> None:
    before = threading.active_count()
    with pytest.raises(TopologyError, match=r"'no\.yaml' does not exist"):
        call("no.yaml")  # type: ignore[operator]
    assert threading.active_count() == before


def test_a_status_is_one_line() -> None:
    status = WorkerStatus("shop", "running", {"orders[0]": "running"}, records=1200, late=3)
    assert str(status) == "shop: running, 1 tasks, 1,200 records, lag 0, late 3"
