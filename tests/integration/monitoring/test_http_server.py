"""An HTTP server answers whatever clients do, and stops at once."""

from __future__ import annotations

import itertools
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse, IncompleteRead, RemoteDisconnected
from multiprocessing.connection import wait

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from eosframework.application.composition import application_status
from eosframework.application.monitoring.http import http_server
from eosframework.application.monitoring.http.exchange import Answer, NotServed, Request, Streamed
from eosframework.application.monitoring.http.http_server import serving
from eosframework.errors import ConfigurationError
from eosframework.serialization import bounds


def echo(request: Request) -> Answer:
    content = {"path": list(request.path), "options": dict(request.options)}
    return Answer(HTTPStatus.OK, content)


def broken(request: Request) -> Answer:
    raise ZeroDivisionError("by zero")


def wrong(request: Request) -> Answer:
    raise ConfigurationError("no such key")


def gone(request: Request) -> Answer:
    raise NotServed(HTTPStatus.NOT_FOUND, "it is elsewhere", partition=3)


def endless(request: Request) -> Answer:
    """More than the kernel keeps for a client that does not read."""
    return Answer(HTTPStatus.OK, Streamed(itertools.repeat(b" " * 100_000)))


def stops(request: Request) -> Answer:
    """An answer whose end cannot be made."""
    return Answer(HTTPStatus.OK, Streamed(json.dumps(1 // n).encode() for n in (1, 0)))


PAGES = {
    "echo": echo,
    "livez": echo,
    "broken": broken,
    "wrong": wrong,
    "gone": gone,
    "endless": endless,
    "stops": stops,
}


@pytest.fixture
def address() -> Iterator[str]:
    with serving("127.0.0.1:0", PAGES) as address:
        yield address


def ask(address: str, path: str, method: str = "GET") -> tuple[int, HTTPResponse, bytes]:
    connection = HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response, response.read()
    finally:
        connection.close()


def test_paths_and_options_arrive_as_they_were_meant(address: str) -> None:
    status, response, content = ask(address, "/echo/a/%C3%A9?from=x%20y&to=")
    assert status == 200
    assert response.headers["Content-Type"] == "application/json"
    assert json.loads(content) == {"path": ["a", "é"], "options": {"from": "x y", "to": ""}}


@pytest.mark.parametrize("line", ["GET //[", "GET http://[", "GET http://[::1", "nonsense"])
def test_a_request_line_that_cannot_be_read_is_refused_and_probes_are_answered(
    line: str, address: str
) -> None:
    host, port = address.split(":")
    for _ in range(30):
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(f"{line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert client.recv(100).split()[1] == b"400", line
    assert ask(address, "/livez")[0] == 200


@pytest.mark.parametrize(("more", "status"), [(-1, 200), (0, 200), (1, 400)])
def test_fields_of_a_query_are_bounded(more: int, status: int, address: str) -> None:
    count = bounds.FIELDS.value + more
    found, _, content = ask(address, "/echo?" + "&".join(f"f{n}=1" for n in range(count)))
    assert found == status
    if status == 200:
        assert len(json.loads(content)["options"]) == count
    assert ask(address, "/livez")[0] == 200


@pytest.mark.parametrize(("more", "status"), [(-1, 200), (0, 200), (1, 431)])
def test_the_head_of_a_request_is_bounded(more: int, status: int, address: str) -> None:
    host, port = address.split(":")
    head = b"GET /echo HTTP/1.1\r\nHost: localhost\r\nX-Long: \r\n\r\n"
    padding = b"x" * (bounds.HEAD_BYTES.value + more - len(head))
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(head.replace(b"Long: ", b"Long: " + padding))
        assert f" {status} ".encode() in client.recv(100)


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/wrong", 400, "no such key"),
        ("/gone", 404, "it is elsewhere"),
        ("/nothing", 404, "there is no '/nothing'; there are /broken, /echo, /endless, /gone, "),
        ("/", 404, "there is no '/'"),
    ],
)
def test_what_cannot_be_answered_is_one_message(
    address: str, path: str, status: int, error: str
) -> None:
    found, _, content = ask(address, path)
    assert found == status
    assert json.loads(content)["error"].startswith(error)


def test_a_page_that_fails_is_logged_and_the_next_request_answered(address: str) -> None:
    with capture_logs() as logs:
        status, _, content = ask(address, "/broken")
        assert (status, json.loads(content)) == (500, {"error": "ZeroDivisionError: by zero"})
        assert ask(address, "/echo")[0] == 200
    assert [event["event"] for event in logs] == ["http_failed"]


def test_nothing_can_be_changed(address: str) -> None:
    for method in ("POST", "PUT", "DELETE"):
        status, _, content = ask(address, "/echo", method)
        assert status == 501
        assert "Unsupported method" in json.loads(content)["error"]
    status, response, content = ask(address, "/echo", "HEAD")
    assert (status, content) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


def connect(address: str, request: bytes) -> socket.socket:
    host, port = address.split(":")
    client = socket.create_connection((host, int(port)), timeout=60)
    client.sendall(request)
    return client


@pytest.mark.parametrize(("more", "status"), [(-1, 200), (0, 200), (1, 413)])
def test_the_body_of_a_request_is_bounded(more: int, status: int, address: str) -> None:
    length = bounds.BODY_BYTES.value + more
    head = f"GET /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    with connect(address, head.encode() + b"x" * length) as client:
        assert client.recv(100).split()[1] == str(status).encode()


@pytest.mark.parametrize(("more", "is_closed"), [(-1, False), (0, False), (1, True)])
def test_a_connection_beyond_the_bound_replaces_the_slowest(
    more: int, is_closed: bool, address: str
) -> None:
    clients = [connect(address, b"") for _ in range(bounds.CONNECTIONS.value + more)]
    try:
        # A request through the last one: those before it are accepted by then.
        clients[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert clients[-1].recv(100).split()[1] == b"200"
        assert [bool(wait([client], 0)) for client in clients[:2]] == [is_closed, False]
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_answer_of_an_asked_process_is_bounded(more: int) -> None:
    content = {"x": "x" * (bounds.ASKED_BYTES.value + more - len('{"x":""}'))}
    with serving("127.0.0.1:0", {"large": lambda _: Answer(HTTPStatus.OK, content)}) as address:
        if more <= 0:
            assert application_status.ask(address, "/large") == (200, content)
            return
        with pytest.raises(ConfigurationError, match="no process of eosframework answers there"):
            application_status.ask(address, "/large")


SLOW = {
    "says nothing": b"",
    "does not finish its request": b"GET /echo HTTP/1.1\r\nX-More: ",
    "does not finish its body": b"GET /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
    "does not read its answer": b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("kind", SLOW)
def test_slow_clients_delay_no_probe_by_more_than_a_second(kind: str, address: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    slow = [connect(address, SLOW[kind]) for _ in range(bounds.CONNECTIONS.value + 40)]
    try:
        seconds: list[float] = []
        for _ in range(20):
            began = time.monotonic()
            assert ask(address, "/livez")[0] == 200
            seconds.append(time.monotonic() - began)
        assert max(seconds) < 1
        taken = len(os.listdir("/proc/self/fd")) - before - len(slow)
        assert taken <= bounds.CONNECTIONS.value + 1, "the server's descriptors"
    finally:
        for client in slow:
            client.close()


def test_a_client_that_says_nothing_holds_nobody_up() -> None:
    # A busy machine delays now one end and now another: the quickest counts.
    assert min(seconds_to_stop() for _ in range(3)) < 3


def seconds_to_stop() -> float:
    """How long a server takes to stop that clients are connected to which say nothing."""
    with serving("127.0.0.1:0", PAGES) as address:
        host, port = address.split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(10)]
        try:
            assert ask(address, "/echo")[0] == 200
        finally:
            began = time.monotonic()
    took = time.monotonic() - began
    for each in silent:
        each.close()
    return took


def drip(address: str, seconds: float) -> float:
    """How long a client stays connected that sends a byte now and then, at most `seconds`."""
    host, port = address.split(":")
    began = time.monotonic()
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"GET /echo HTTP/1.1\r\nX-More: ")
        client.settimeout(0.02)
        while time.monotonic() - began < seconds:
            try:
                client.send(b"x")
                if not client.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    return time.monotonic() - began


def test_a_request_has_a_deadline_in_total_and_a_byte_now_and_then_wins_no_time(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = bounds.RECEIVE_SECONDS._replace(value=1)
    monkeypatch.setattr(bounds, "RECEIVE_SECONDS", short)
    assert drip(address, seconds=20) < 20
    assert ask(address, "/echo")[0] == 200


def test_an_answer_has_a_deadline_whether_its_page_or_its_client_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends, is_closed = threading.Event(), threading.Event()

    def slow(_: Request) -> Answer:
        ends.wait()
        return Answer(HTTPStatus.OK, {})

    def parts() -> Iterator[bytes]:
        try:
            yield from itertools.repeat(b" " * 100_000)
        finally:
            is_closed.set()

    def unread(_: Request) -> Answer:
        return Answer(HTTPStatus.OK, Streamed(parts()))

    short = bounds.PAGE_SECONDS._replace(value=1)
    monkeypatch.setattr(http_server, "PAGE_SECONDS", short)
    with serving("127.0.0.1:0", {"slow": slow, "unread": unread}) as address:
        with pytest.raises(RemoteDisconnected):
            ask(address, "/slow")
        with connect(address, b"GET /unread HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            assert is_closed.wait(30)
        ends.set()


def test_an_answer_that_fails_on_its_way_ends_before_its_end(address: str) -> None:
    with capture_logs() as logs, pytest.raises(IncompleteRead):
        ask(address, "/stops")
    assert [event["event"] for event in logs] == ["http_failed"]


def test_probes_are_answered_while_all_other_pages_take_long() -> None:
    ends, begun = threading.Event(), threading.Semaphore(0)

    def slow(_: Request) -> Answer:
        begun.release()
        ends.wait()
        return Answer(HTTPStatus.OK, {})

    with serving("127.0.0.1:0", {"slow": slow, "livez": echo}) as address:
        with ThreadPoolExecutor(bounds.PAGES.value) as clients:
            asked = [clients.submit(ask, address, "/slow") for _ in range(bounds.PAGES.value)]
            for _ in asked:
                assert begun.acquire(timeout=60)
            assert ask(address, "/livez")[0] == 200
            status, _, content = ask(address, "/slow")
            assert (status, "8 requests are being answered" in content.decode()) == (503, True)
            ends.set()
            assert {each.result()[0] for each in asked} == {200}
        assert ask(address, "/slow")[0] == 200


@pytest.mark.parametrize("others", [0, 1])
def test_a_probe_is_answered_where_the_process_has_no_descriptor_left(
    address: str, others: int
) -> None:
    host, port = address.split(":")
    probe = socket.socket()
    silent = [socket.create_connection((host, int(port))) for _ in range(others)]
    taken: list[int] = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(int(name) for name in os.listdir("/proc/self/fd")) + 5
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        probe.settimeout(60)
        probe.connect((host, int(port)))
        # Looking for a further client needs a descriptor, too: it must not cost the one let in.
        hung_up = wait([probe], 0.2)
        probe.sendall(b"GET /echo HTTP/1.0\r\n\r\n")
        answer = probe.recv(1000)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for client in (probe, *silent):
            client.close()
    assert taken
    assert not hung_up
    assert answer.split()[1] == b"200"


HOSTS = {
    "127.0.0.1": 200,
    "127.0.0.1:8080": 200,
    "[::1]:8080": 200,
    "localhost:8080": 200,
    "worker-1": 200,
    "SHOP.example.com:8080": 200,
    "evil.example.com": 421,
    "shop.example.com.evil.com": 421,
    "127.0.0.1.nip.io": 421,
    "[evil.com]": 421,
}


@pytest.mark.parametrize("host", HOSTS)
def test_only_names_that_no_foreign_page_can_have_are_answered(host: str) -> None:
    with serving("127.0.0.1:0", PAGES, hosts=["shop.example.com"]) as address:
        connection = HTTPConnection(address, timeout=60)
        connection.request("GET", "/echo", headers={"Host": host})
        response = connection.getresponse()
        content = response.read().decode()
        connection.close()
    assert response.status == HOSTS[host]
    assert (response.status == 200) != ("worker.http_hosts" in content)


@given(st.binary(max_size=300), st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_bytes_come_the_next_request_is_answered(
    address: str, noise: bytes, is_line: bool
) -> None:
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as client:
        client.settimeout(60)
        with suppress(ConnectionResetError, BrokenPipeError):
            client.sendall(b"GET /" + noise + b" HTTP/1.1\r\n\r\n" if is_line else noise)
            client.shutdown(socket.SHUT_WR)
            while client.recv(10_000):
                pass
    assert ask(address, "/echo")[0] == 200


def test_an_address_that_is_taken_or_is_not_ours_is_named(address: str) -> None:
    for taken in (address, "no.such.host.invalid:0", "127.0.0.1:99999"):
        with pytest.raises(ConfigurationError, match="cannot be listened on"), serving(taken, {}):
            pass


def test_it_listens_on_ipv6_as_well() -> None:
    if not socket.has_ipv6:
        return
    with serving("[::1]:0", PAGES) as address:
        assert address.startswith("[::1]:")
        assert ask(address, "/echo")[0] == 200
