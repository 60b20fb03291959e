"""`/livez` tells whether to end a process, `/readyz` whether it does its work, and why not."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import pytest

from eosframework.application.monitoring.http.exchange import Answer, Health, Reason, Request
from eosframework.application.monitoring.http.http_server import address_of_child, host_and_port
from eosframework.config import Settings


class World:
    """A process as `Health` sees it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.health = Health(30.0, 300.0, lambda: self.now)

    def ready(self) -> tuple[HTTPStatus, Any]:
        return answered(self.health.readyz(Request([], {})))

    def live(self) -> tuple[HTTPStatus, Any]:
        return answered(self.health.livez(Request([], {})))


def answered(answer: Answer) -> tuple[HTTPStatus, Any]:
    assert isinstance(answer.content, dict)
    assert answer.content["ok"] is (answer.status is HTTPStatus.OK)
    return answer.status, [reason["code"] for reason in answer.content["reasons"]]


def test_a_process_is_live_and_ready_while_turns_go_on() -> None:
    world = World()
    assert world.ready() == (HTTPStatus.SERVICE_UNAVAILABLE, ["starting"])
    assert world.live() == (HTTPStatus.OK, [])
    world.health.turn([])
    world.now = 29.0
    assert world.ready() == world.live() == (HTTPStatus.OK, [])


def test_without_a_turn_for_long_it_is_not_ready_and_without_one_for_longer_not_live() -> None:
    world = World()
    world.health.turn([])
    world.now = 31.0
    assert world.ready() == (HTTPStatus.SERVICE_UNAVAILABLE, ["stuck"])
    assert world.live() == (HTTPStatus.OK, [])
    world.now = 301.0
    assert world.live() == (HTTPStatus.SERVICE_UNAVAILABLE, ["stuck"])
    world.health.turn([])
    assert world.ready() == world.live() == (HTTPStatus.OK, [])


def test_a_process_that_is_stuck_names_the_function_and_the_limit() -> None:
    world = World()
    world.health.turn([])
    world.now = 301.0
    for answer in (world.health.livez, world.health.readyz):
        content = answer(Request([], {})).content
        assert isinstance(content, dict)
        [reason] = content["reasons"]
        assert "the main thread waits in " in reason["message"]
        assert "watchdog._frame_of" in reason["message"], (
            "here, the thread that asks is the main one"
        )
    live = world.health.livez(Request([], {})).content
    assert isinstance(live, dict)
    assert (live["turn_seconds_ago"], live["limit_seconds"]) == (301, 300)


def test_what_keeps_it_from_its_work_is_told_and_does_not_end_it() -> None:
    world = World()
    world.health.turn([Reason("restoring", "2 tasks"), Reason("away", "the database is away")])
    assert world.ready() == (HTTPStatus.SERVICE_UNAVAILABLE, ["restoring", "away"])
    assert world.live() == (HTTPStatus.OK, [])
    world.health.turn([])
    assert world.ready() == (HTTPStatus.OK, [])


@pytest.mark.parametrize("section", ["worker", "outbox"])
@pytest.mark.parametrize(
    ("address", "parts"),
    [("127.0.0.1:8080", ("127.0.0.1", 8080)), ("[::1]:80", ("::1", 80)), ("host:0", ("host", 0))],
)
def test_an_address_is_a_host_and_a_port(
    section: str, address: str, parts: tuple[str, int]
) -> None:
    assert Settings.model_validate({section: {"http_address": address}})
    assert host_and_port(address) == parts


@pytest.mark.parametrize("address", ["8080", "127.0.0.1", ":80", "::1:80", "a:b", "http://a:80"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="http_address"):
        Settings.model_validate({"worker": {"http_address": address}})


def test_each_process_has_a_port_of_its_own() -> None:
    assert address_of_child("127.0.0.1:8080", 2) == "127.0.0.1:8082"
    assert address_of_child("[::1]:8080", 1) == "[::1]:8081"
    assert address_of_child("127.0.0.1:0", 1) == "127.0.0.1:0"
