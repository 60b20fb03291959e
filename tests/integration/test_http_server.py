"""The worker's HTTP server answers whatever clients do, and stops at once."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse

import pytest
from structlog.testing import capture_logs

from eosframework.errors import ConfigurationError
from eosframework.serving.pages import Answer, NotServed, Request
from eosframework.serving.server import serving


def echo(request: Request) -> Answer:
    content = {"path": list(request.path), "options": dict(request.options)}
    return Answer(HTTPStatus.OK, content)


def broken(request: Request) -> Answer:
    raise ZeroDivisionError("by zero")


def wrong(request: Request) -> Answer:
    raise ConfigurationError("no such key")


def gone(request: Request) -> Answer:
    raise NotServed(HTTPStatus.NOT_FOUND, "it is elsewhere", partition=3)


PAGES = {"echo": echo, "broken": broken, "wrong": wrong, "gone": gone}


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
    status, response, content = ask(address, "/echo/a%2Fb/%C3%A9?from=x%20y&to=")
    assert status == 200
    assert response.headers["Content-Type"] == "application/json"
    assert json.loads(content) == {"path": ["a/b", "é"], "options": {"from": "x y", "to": ""}}


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/wrong", 400, "no such key"),
        ("/gone", 404, "it is elsewhere"),
        ("/nothing", 404, "there is no '/nothing'; there are /broken, /echo, /gone, /wrong"),
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
