"""The console's server: sizes, times, names, addresses, and a cluster that is away and comes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from eosframework.console.guard import HEADERS, LARGEST_BODY
from eosframework.console.server import HEAD_SECONDS, LARGEST_HEAD
from eosframework.embedded import start_kafka
from tests.support.applications.pipeline import Pipeline
from tests.support.processes.commands import here
from tests.support.processes.consoles import ConsoleProcess, running_console
from tests.support.processes.programs import FRAMEWORK, fork_program

TOPOLOGY = """\
application: copies
sources:
  numbers: {topic: numbers, value: json}
streams:
  copied: {from: numbers, to: copied}
"""
NOWHERE = "kafka.bootstrap_servers=127.0.0.1:9"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console whose cluster is away."""
    directory = tmp_path_factory.mktemp("console")
    (directory / "topology.yaml").write_text(TOPOLOGY)
    short = [NOWHERE, "kafka.request_timeout_seconds=2"]
    with running_console(directory, directory / "topology.yaml", settings=short) as console:
        yield console


def test_a_cluster_that_is_away_is_said_on_each_page_that_needs_it(console: ConsoleProcess) -> None:
    for page in ("topology", "tasks", "transactions", "positions", "dead-letters", "backfills"):
        answer = console.wait_for(f"/{page}", "127.0.0.1:9")
        assert answer.status in (200, 503), page
        assert 'role="alert"' in answer.html or page == "dead-letters", page
    assert "copied" in console.get("/topology").text, "the graph is drawn without a cluster"


def test_every_answer_forbids_what_the_pages_do_not_need(console: ConsoleProcess) -> None:
    for path in ("/audit", "/assets/console.css", "/assets/console.js", "/none", "/changes/reset"):
        answer = console.get(path)
        for name, value in HEADERS.items():
            assert answer.headers[name.decode()] == value.decode(), (path, name)
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "<script>" not in answer.html
        assert " style=" not in answer.html
        assert "http://" not in answer.html.replace("http://www.w3.org/", "")


@pytest.mark.parametrize("number", ["²".encode(), b"9" * 5000], ids=["superscript", "long"])
def test_a_job_whose_number_is_none_is_not_known(console: ConsoleProcess, number: bytes) -> None:
    answer = console.get(f"/jobs/{quote(number)}")
    assert answer.status == 404
    assert "is not known to this console" in answer.text


@pytest.mark.parametrize("host", ["console.example.com", "evil.example:80"])
def test_a_foreign_name_in_host_is_refused(console: ConsoleProcess, host: str) -> None:
    for path in ("/audit", "/assets/console.js"):
        assert console.get(path, {"Host": host}).status == 421


def test_a_request_that_is_too_large_is_refused(console: ConsoleProcess) -> None:
    token = console.get("/audit").form_token
    large = {"form_token": token, "from": "x" * LARGEST_BODY}
    assert console.post("/audit", large).status == 413
    host, _, port = console.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as endless:
        sent = 0
        with suppress(OSError):
            endless.sendall(b"GET /audit HTTP/1.1\r\nX-Large: ")
            while sent < 1000 * LARGEST_HEAD:
                endless.sendall(b"x" * LARGEST_HEAD)
                sent += LARGEST_HEAD
        assert sent < 1000 * LARGEST_HEAD, "the console closes the connection"
    assert console.get("/state?store=" + "x" * 1000).status == 200


def test_a_request_whose_head_does_not_come_is_given_up(console: ConsoleProcess) -> None:
    host, _, port = console.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as slow:
        began = time.monotonic()
        slow.sendall(b"GET /topology HTTP/1.1\r\nHost: ")
        assert slow.recv(1000) == b"", "the console closes it"
        assert HEAD_SECONDS - 1 < time.monotonic() - began < HEAD_SECONDS + 30
    assert console.get("/audit").status == 200


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--address", "0.0.0.0:0"], "console.token"),
        (["--address", "127.0.0.1:0", "--allow-changes"], "console.token"),
        (["--address", "8088"], "expected HOST:PORT"),
        (["--set", "console.token=short"], "console.token"),
    ],
)
def test_an_unsafe_start_is_refused_with_the_next_step(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    done = here("console", str(tmp_path / "topology.yaml"), *arguments)
    assert done.exit_code == 2
    assert expected in done.error
    assert "short" not in done.error.replace("shorter", "")


def test_a_port_that_is_taken_is_named(console: ConsoleProcess, tmp_path: Path) -> None:
    done = here("console", "topology.yaml", "--address", console.address)
    assert done.exit_code == 2
    assert f"--address={console.address!r} cannot be listened on" in done.error


@pytest.mark.exhaustive
def test_pages_recover_once_the_broker_is_back(
    unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    cluster = start_kafka(tmp_path / "kafka", fast_start=True)
    try:
        pipeline = Pipeline(cluster.bootstrap_servers, unique_name("app"), tmp_path / "app")
        servers = f"kafka.bootstrap_servers={cluster.bootstrap_servers}"
        own = [servers, "kafka.request_timeout_seconds=3", "console.refresh_seconds=0.5"]
        with running_console(tmp_path, pipeline.topology_file, settings=own) as console:
            console.wait_for("/topology", "0 members, 4 tasks")
            cluster.nodes[0].kill()
            old = console.wait_for("/topology", "Shown below: what was read at")
            assert "0 members, 4 tasks" in old.text, "the last reading is still shown"
            cluster.nodes[0].start()
            console.wait_for("/topology", "Read at")
            pipeline.feed(8)
            fresh = console.wait_for("/topology", "0 members, 4 tasks, lag 8")
            assert 'role="alert"' not in fresh.html
    finally:
        cluster.kill()


def test_sigterm_ends_it_with_0(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    command = ["console", str(tmp_path / "topology.yaml"), "--address", "127.0.0.1:0"]
    log = tmp_path / "console.log"
    process = fork_program(FRAMEWORK, [*command, "--set", NOWHERE], environment={}, out=log)
    console = ConsoleProcess(process, log)
    assert console.get("/audit").status == 200
    process.terminate()
    assert process.wait(60) == 0
