"""`/health` tells whether the main thread's turns go on."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from eosframework.config import Settings
from eosframework.processing.plan import WorkerCounts
from eosframework.serving.address import address_of_child, host_and_port
from eosframework.serving.health import Health
from eosframework.serving.pages import Answer, Request


class World:
    """A worker as `Health` sees it."""

    def __init__(self) -> None:
        self.now, self.waiting = 0.0, 0
        self.health = Health(30.0, lambda: self.waiting, lambda: self.now)

    def ask(self) -> Answer:
        return self.health.page(Request([], {}))


def test_a_worker_is_healthy_while_turns_go_on() -> None:
    world = World()
    assert world.ask().status is HTTPStatus.SERVICE_UNAVAILABLE
    assert world.ask().content["status"] == "starting"
    world.health.turn(WorkerCounts(records=7, lag=3))
    world.now = 29.0
    assert world.ask() == Answer(
        HTTPStatus.OK, {"status": "running", "turn_seconds_ago": 29.0, "records": 7, "lag": 3}
    )


def test_a_worker_without_a_turn_for_long_is_stuck_until_the_next_one() -> None:
    world = World()
    world.health.turn(WorkerCounts())
    world.now = 31.0
    assert world.ask().status is HTTPStatus.SERVICE_UNAVAILABLE
    assert world.ask().content["status"] == "stuck"
    assert "31 s ago" in world.ask().content["reason"]
    world.health.turn(WorkerCounts())
    assert world.ask().status is HTTPStatus.OK


def test_a_worker_whose_tasks_wait_for_their_state_says_how_much_is_left() -> None:
    world = World()
    world.health.turn(WorkerCounts(restoring=1234))
    world.waiting = 2
    assert world.ask().status is HTTPStatus.SERVICE_UNAVAILABLE
    assert world.ask().content == {
        "status": "restoring",
        "reason": "2 tasks wait for their state, 1234 records of changelogs",
    }


@pytest.mark.parametrize(
    ("address", "parts"),
    [("127.0.0.1:8080", ("127.0.0.1", 8080)), ("[::1]:80", ("::1", 80)), ("host:0", ("host", 0))],
)
def test_an_address_is_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert Settings.model_validate({"worker": {"http_address": address}})
    assert host_and_port(address) == parts


@pytest.mark.parametrize("address", ["8080", "127.0.0.1", ":80", "::1:80", "a:b", "http://a:80"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="http_address"):
        Settings.model_validate({"worker": {"http_address": address}})


def test_each_process_has_a_port_of_its_own() -> None:
    assert address_of_child("127.0.0.1:8080", 2) == "127.0.0.1:8082"
    assert address_of_child("[::1]:8080", 1) == "[::1]:8081"
    assert address_of_child("127.0.0.1:0", 1) == "127.0.0.1:0"
