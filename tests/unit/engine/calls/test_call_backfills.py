"""A backfill's attempts run calls as workers do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eosframework import Topology, dead_letter
from eosframework.errors import OutcomeUnknown
from tests.unit.spark.backfill.attempts import PART, World

pytestmark = pytest.mark.enable_socket  # An event loop has a pair of its own.


async def is_small(value: dict[str, int]) -> bool:
    await asyncio.sleep((value["n"] % 7) / 1000)
    return value["n"] < 90


async def unlucky(value: dict[str, int]) -> dict[str, int]:
    if value["n"] == 47:
        raise ValueError("not 47")
    return value


def topology() -> Topology:
    app = Topology("app")
    numbers = app.stream("in", key=bytes, value=dict, name=PART).on_error(dead_letter("dead"))
    numbers.filter_async(is_small, concurrency=10).map_async(unlucky).to("out")
    return app


def test_an_attempt_gives_what_a_worker_would_and_once() -> None:
    world = World(topology())
    faults: list[Any] = [(None, True), (OutcomeUnknown("x"), False), (OutcomeUnknown("x"), True)]
    world.broker.commit_faults = faults
    done = world.run()
    assert world.numbers() == [n for n in range(90) if n != 47]
    assert world.numbers("dead") == [47]
    assert (done.complete, done.records, done.dead_letters) == (True, 100, 1)
