"""Every error of every call of a store, of the producer and of the consumer, over the whole cycle.

A worker runs over a log in memory whose calls fail as planned; others follow until all is done.
Whenever one has ended, outputs, changelogs, stores, offsets and dead letters have to be what plain
Python makes of the inputs up to the committed offsets. It searches for mistakes in the cycle and
claims nothing about Kafka, for which there are real brokers.

    EOS_MATRIX_SEED=7 make unit             another sample
    pytest tests/unit/matrix -m exhaustive  the whole matrix
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable

import pytest

from tests.unit.matrix.cases import Case, drawn, run, singles
from tests.unit.matrix.play import Scenario
from tests.unit.matrix.scenarios import ALL

SEED = int(os.environ.get("EOS_MATRIX_SEED", "16"))

SAMPLE = 45
"""Cases of each scenario with one fault, and half as many with several."""

DRAWN = 1500
"""The same of the whole matrix."""

each_scenario = pytest.mark.parametrize("scenario", ALL, ids=[each.name for each in ALL])


def wrong_of(cases: Iterable[Case]) -> list[str]:
    """Run cases, and return what the wrong ones show."""
    found: list[str] = []
    fired = 0
    for case in cases:
        verdict = run(case)
        fired += verdict.fired > 0
        if verdict.wrong is not None:
            found.append(f"seed {SEED}: {case}: {verdict.wrong}")
    assert fired, "no fault was met"
    return found


@each_scenario
def test_no_error_changes_what_comes_of_the_records(scenario: Scenario) -> None:
    draw = random.Random(f"{SEED} {scenario.name}")
    cases = draw.sample(list(singles(scenario)), SAMPLE)
    cases += [drawn(scenario, draw, draw.choice((2, 3))) for _ in range(SAMPLE // 2)]
    assert wrong_of(cases) == []


@pytest.mark.exhaustive
@each_scenario
def test_no_error_of_any_call_changes_what_comes_of_the_records(scenario: Scenario) -> None:
    assert wrong_of(singles(scenario)) == []


@pytest.mark.exhaustive
@each_scenario
def test_no_errors_in_a_row_change_what_comes_of_the_records(scenario: Scenario) -> None:
    draw = random.Random(f"{SEED} {scenario.name}")
    assert wrong_of(drawn(scenario, draw, draw.choice((2, 3, 4))) for _ in range(DRAWN)) == []
