"""Hostile records through real workers: each has its outcome, and nobody else bears it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import TOLD, KafkaService
from tests.hostile.cases import SWITCHED_OFF, cases, inputs
from tests.hostile.drawing import Drawing
from tests.hostile.world import HostileWorld

SEED = int(os.environ.get("EOS_FUZZ_SEED", "17"))

DRAWN = 500
"""Records that are drawn; `make fuzz` goes on for as long as it is told."""


@pytest.fixture
def world(
    kafka: KafkaService, unique_name: Callable[[str], str], database: str, tmp_path: Path
) -> Iterator[HostileWorld]:
    made = HostileWorld(kafka.bootstrap_servers, unique_name("hostile"), tmp_path, database)
    yield made
    made.close()


def test_hostile_records_have_one_outcome_each_and_harm_no_other(
    world: HostileWorld, record_property: Callable[[str, object], None]
) -> None:
    off = sum(case.pending in SWITCHED_OFF for case in cases())
    told = f"EOS_FUZZ_SEED={SEED}; {off} cases are switched off: {sorted(SWITCHED_OFF)}"
    record_property(TOLD, told)
    world.feed(inputs())
    world.start()
    world.wait()
    assert world.wrong() == []
    world.feed(Drawing(SEED).inputs(DRAWN, world.moment))
    world.wait()
    assert world.wrong() == [], told
    assert world.stop() == [0, 0]
