"""Outputs and rows in one decision, on a real broker and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.applications.together import TOGETHER, TogetherWorld

MakeTables = Callable[..., TogetherWorld]


@pytest.fixture
def world(make_tables: MakeTables) -> TogetherWorld:
    world = make_tables(TogetherWorld, topology=TOGETHER, outputs={"doubled": 2})
    world.apply()
    return world


def test_each_record_has_one_output_and_one_row(world: TogetherWorld) -> None:
    world.feed(2000)
    world.finish()
    world.feed(1000)
    worker = world.finish()
    assert world.seen().clean, world.seen()
    assert world.count("doubled") == 3000
    assert not worker.events("decision_produced_again")
