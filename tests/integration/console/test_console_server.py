"""The console's server: sizes, times, names, addresses, and a cluster that is away and comes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from eosframework.embedded import start_kafka
from eosframework.operations.console.site import HEADERS, WRONG_TOKEN_SECONDS
from eosframework.serialization.bounds import (
    BODY_BYTES,
    CONNECTIONS,
    FIELDS,
    HEAD_BYTES,
    RECEIVE_SECONDS,
)
from tests.support.applications.pipeline import Pipeline
from tests.support.processes.commands import here
from tests.support.processes.consoles import Answer, ConsoleProcess, running_console
from tests.support.processes.programs import FRAMEWORK, fork_program

TOPOLOGY = """\
application: copies
sources:
  numbers: {topic: numbers, value: json}
streams:
  copied: {from: numbers, to: copied}
"""
NOWHERE = "kafka.bootstrap_servers=127.0.0.1:9"
TOKEN = "a token of sixteen characters"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console whose cluster is away."""
    directory = tmp_path_factory.mktemp("console")
    (directory / "topology.yaml").write_text(TOPOLOGY)
    short = [NOWHERE, "kafka.request_timeout_seconds=2"]
    with running_console(directory, directory / "topology.yaml", settings=short) as console:
        yield console


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console that needs a token."""
    directory = tmp_path_factory.mktemp("locked")
    (directory / "topology.yaml").write_text(TOPOLOGY)
    token = {"EOS_CONSOLE__TOKEN": TOKEN}
    topology = directory / "topology.yaml"
    with running_console(directory, topology, settings=[NOWHERE], environment=token) as console:
        yield console


@pytest.mark.exhaustive
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
            expected = "no-cache" if "assets" in path and name == "Cache-Control" else value
            assert answer.headers[name.lower()] == expected, (path, name)
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
    large = {"form_token": token, "from": "x" * BODY_BYTES.value}
    assert console.post("/audit", large).status == 413
    host, _, port = console.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as endless:
        sent = 0
        with suppress(OSError):
            endless.sendall(b"GET /audit HTTP/1.1\r\nX-Large: ")
            while sent < 1000 * HEAD_BYTES.value:
                endless.sendall(b"x" * HEAD_BYTES.value)
                sent += HEAD_BYTES.value
        assert sent < 1000 * HEAD_BYTES.value, "the console closes the connection"
    assert console.get("/state?store=" + "x" * 1000).status == 200


def test_a_request_whose_head_does_not_come_is_given_up(console: ConsoleProcess) -> None:
    host, _, port = console.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as slow:
        began = time.monotonic()
        slow.sendall(b"GET /topology HTTP/1.1\r\nHost: ")
        assert slow.recv(1000) == b"", "the console closes it"
        assert -1 < time.monotonic() - began - RECEIVE_SECONDS.value < 30
    assert console.get("/audit").status == 200


@pytest.mark.parametrize("target", ["//[", "http://[", "/audit?" + "&" * FIELDS.value])
def test_a_request_that_cannot_be_read_is_refused(target: str, console: ConsoleProcess) -> None:
    host, _, port = console.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(100).split()[1] == b"400"
    assert console.get("/audit").status == 200


def test_idle_connections_take_a_bounded_number_of_descriptors(console: ConsoleProcess) -> None:
    process = psutil.Process(console.process.pid)
    host, _, port = console.address.partition(":")

    def descriptors() -> int:
        """Of clients: the console also has connections of its own, which come and go."""
        found = process.net_connections("inet")
        return sum(c.laddr.port == int(port) and c.status != psutil.CONN_LISTEN for c in found)

    idle = [socket.create_connection((host, int(port))) for _ in range(5 * CONNECTIONS.value)]
    try:
        assert console.get("/audit").status == 200
        assert 0 < descriptors() <= CONNECTIONS.value
    finally:
        for client in idle:
            client.close()


def sign_in(console: ConsoleProcess, token: str, **headers: str) -> Answer:
    form = {"form_token": console.get("/sign-in").form_token, "token": token}
    return console.post("/sign-in", form, {n.replace("_", "-"): v for n, v in headers.items()})


def test_wrong_tokens_delay_their_own_clients_alone(locked: ConsoleProcess) -> None:
    seconds: list[float] = []
    ends = threading.Event()
    began = threading.Semaphore(0)

    def guess(number: int) -> None:
        while not ends.is_set():
            wrong = sign_in(locked, "a wrong token")
            began.release()
            assert wrong.status in (403, 429), wrong.text
            bearer = locked.get("/audit", {"Authorization": f"Bearer {number}"})
            assert bearer.status in (401, 429), bearer.text

    with ThreadPoolExecutor(40) as clients:
        guesses = [clients.submit(guess, number) for number in range(40)]
        for _ in guesses:
            assert began.acquire(timeout=60)
        for _ in range(5):
            started = time.monotonic()
            assert sign_in(locked, TOKEN).status == 303
            right = locked.get("/sign-in", {"Authorization": f"Bearer {TOKEN}"})
            assert right.status == 200
            seconds.append(time.monotonic() - started)
        ends.set()
        for each in guesses:
            each.result()
    assert min(seconds) < 1.5, seconds
    started = time.monotonic()
    assert sign_in(locked, "a wrong token").status == 403
    assert time.monotonic() - started >= WRONG_TOKEN_SECONDS


def test_a_session_over_tls_has_a_cookie_that_is_sent_over_tls_alone(
    locked: ConsoleProcess,
) -> None:
    over_tls: list[dict[str, str]] = [
        {"Origin": f"https://{locked.address}"},
        {"X_Forwarded_Proto": "https"},
        {"X_Forwarded_Proto": "https, http"},
    ]
    for headers in over_tls:
        cookie = sign_in(locked, TOKEN, **headers).headers["set-cookie"]
        assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    for headers in ({}, {"Origin": f"http://{locked.address}"}):
        assert "Secure" not in sign_in(locked, TOKEN, **headers).headers["set-cookie"]


def test_a_visitor_who_is_not_signed_in_learns_nothing_of_the_application(
    locked: ConsoleProcess,
) -> None:
    for path in ("/", "/topology", "/none", "/jobs/1", "/changes/reset"):
        assert locked.get(path).headers["location"].startswith("/sign-in"), path
    forged = locked.post("/sign-in", {"form_token": "0", "token": TOKEN})
    assert forged.status == 403
    for shown in (locked.get("/sign-in"), sign_in(locked, "a wrong token"), forged):
        for secret in ("copies", "topology.yaml", "only reads", "/dead-letters"):
            assert secret not in shown.html
    signed_in = locked.get("/audit", {"Authorization": f"Bearer {TOKEN}"})
    assert "topology.yaml" in signed_in.html or "copies" in signed_in.html


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
            console.wait_for("/overview", "Not well: the cluster cannot be read")
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
