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
import re
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from tests.unit.matrix.cases import Case, drawn, run, singles
from tests.unit.matrix.faults import Fault
from tests.unit.matrix.play import Choices, Scenario
from tests.unit.matrix.scenarios import ALL, CLOCK, COUNTS, SHARED, TIMERS, WINDOWS, WORDS

SEED = int(os.environ.get("EOS_MATRIX_SEED", "16"))

SAMPLE = 45
"""Cases of each scenario with one fault, and half as many with several."""

DRAWN = 1500
"""The same of the whole matrix."""

each_scenario = pytest.mark.parametrize("scenario", ALL, ids=[each.name for each in ALL])


@dataclass(frozen=True)
class Known:
    """What is known to be wrong, and not mended yet.

    Args:
        call: of one of the faults, with its kind; a pattern.
        wrong: what such a case shows; a pattern.
        examples: cases that show it, and have to as long as this stands here.
        scenario: a pattern.
    """

    reason: str
    call: str
    wrong: str
    examples: tuple[Case, ...]
    scenario: str = ".*"

    def explains(self, case: Case, wrong: str) -> bool:
        """Tell whether a case failed because of this."""
        if not re.fullmatch(self.scenario, case.scenario.name):
            return False
        calls = (f"{fault.call} {fault.kind}" for fault in case.plan)
        return any(re.fullmatch(self.call, call) for call in calls) and bool(
            re.match(self.wrong, wrong)
        )


OVERLAPPING = Choices(batch_records=1, commit_turns=2, asks=2)

KNOWN = (
    Known(
        "a result of a window or timer that is refused is charged to the record behind which it "
        "went out, which is left out",
        r"output\.refused .*",
        r"",
        tuple(
            Case(scenario, (Fault("output.refused", 1, kind),), Choices())
            for scenario in (WINDOWS, CLOCK, TIMERS)
            for kind in ("commit", "produce")
        ),
    ),
    Known(
        "where what became of one commit ends the worker, others of the round never hear of "
        "theirs, and the last commit of the worker repeats them without a transaction",
        r".*",
        r"misused: .* (produce|commit) of (a producer|one) that is (ready|failed)",
        (
            Case(COUNTS, (Fault("stores.write", 1, "StateUnwritable"),), Choices(5)),
            Case(SHARED, (Fault("stores.write", 2, "StateDamaged"),), Choices(5)),
            Case(COUNTS, (Fault("outputs.commit", 3, "done unreported"),), Choices(5)),
        ),
    ),
    Known(
        "where what goes out at a commit fails in one task, those of the round before it are asked "
        "once more for their part, and their emissions go out twice",
        r"user State.*|output\.produce TransactionFatal|log\.pause .*",
        r"out of ",
        (
            Case(WORDS, (Fault("user", 11, "StateDamaged"),), Choices(5)),
            Case(WORDS, (Fault("user", 19, "StateDamaged"),), Choices(1)),
        ),
        scenario="words",
    ),
    Known(
        "an exception that is none of the framework closes producers while their commit is under "
        "way",
        r".* KeyboardInterrupt",
        r"misused: .* closed in a round",
        (
            Case(COUNTS, (Fault("output.poll", 15, "KeyboardInterrupt"),), OVERLAPPING),
            Case(SHARED, (Fault("output.poll", 16, "KeyboardInterrupt"),), OVERLAPPING),
        ),
    ),
)


def wrong_of(cases: Iterable[Case]) -> list[str]:
    """Run cases, and return what the wrong ones show that is not known."""
    found: list[str] = []
    fired = 0
    for case in cases:
        verdict = run(case)
        fired += verdict.fired > 0
        wrong = verdict.wrong
        if wrong is not None and not any(known.explains(case, wrong) for known in KNOWN):
            found.append(f"seed {SEED}: {case}: {wrong}")
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


@pytest.mark.parametrize("known", KNOWN, ids=[str(n) for n, _ in enumerate(KNOWN)])
def test_what_is_known_to_be_wrong_is_wrong_still(known: Known) -> None:
    for case in known.examples:
        wrong = run(case).wrong
        assert wrong is not None, f"{case} is right now: take it out of KNOWN"
        assert known.explains(case, wrong), f"{case} shows something else: {wrong}"
