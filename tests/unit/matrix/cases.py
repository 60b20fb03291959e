"""All cases of the matrix, and how one is run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.support.memory.fault_plan import KINDS, Fault, Faults
from tests.unit.matrix.play import Choices, Scenario, Wrong, play

CHOICES = 48
"""How many `Choices` there are."""

COUNTED = tuple(map(Choices.of, (0, 1, 2, 3, 6, 12, 19, 25, 38, 47)))
"""Those with which the calls without a fault are counted."""


WAYS = 6
"""With so many choices each fault of a commit and each rebalance is met: what matters is what is
under way then."""


@dataclass(frozen=True)
class Case:
    """A scenario with planned faults."""

    scenario: Scenario
    plan: tuple[Fault, ...]
    choices: Choices

    def __str__(self) -> str:
        plan = " then ".join(map(str, self.plan))
        return f"{self.scenario.name} {plan} ({self.choices})"


@dataclass(frozen=True)
class Verdict:
    """What a case showed."""

    wrong: str | None
    fired: int
    endings: tuple[str, ...] = ()


def run(case: Case) -> Verdict:
    """Run a case."""
    faults = Faults(case.plan)
    try:
        world = play(case.scenario, faults, case.choices)
    except Wrong as error:
        return Verdict(str(error), len(faults.fired))
    return Verdict(None, len(faults.fired), tuple(world.endings))


@cache
def calls_of(scenario: Scenario, choices: Choices) -> dict[str, int]:
    """Return how often each call is made without any fault."""
    faults = Faults()
    play(scenario, faults, choices)
    known = KINDS if scenario.refuses else KINDS.keys() - {"output.refused"}
    return {call: count for call, count in faults.totals.items() if call in known}


def singles(scenario: Scenario) -> Iterator[Case]:
    """Yield each kind of fault of each call, one to a case."""
    number_of_case = 0
    most: dict[str, int] = {}
    for choices in COUNTED:
        for call, count in calls_of(scenario, choices).items():
            most[call] = max(most.get(call, 0), count)
    for call, count in sorted(most.items()):
        for number in range(1, count + 1):
            for kind in KINDS[call]:
                plan = (Fault(call, number, kind),)
                for _ in range(WAYS if _matters_when(call, kind) else 1):
                    number_of_case += 1
                    yield Case(scenario, plan, chosen(number_of_case))


def chosen(number: int) -> Choices:
    """Return some choices; those of numbers in a row have little in common."""
    return Choices.of(7 * number % CHOICES)


def _matters_when(call: str, kind: str) -> bool:
    return call == "outputs.commit" or kind in ("revoke", "lose", "overtake")


def drawn(scenario: Scenario, draw: random.Random, faults: int) -> Case:
    """Return a case with several faults; the later ones soon after the first."""
    choices = draw.choice(COUNTED)
    calls = calls_of(scenario, choices)
    call = draw.choice(sorted(calls))
    plan = [Fault(call, draw.randint(1, calls[call]), draw.choice(KINDS[call]))]
    every = sorted(KINDS if scenario.refuses else KINDS.keys() - {"output.refused"})
    for _ in range(faults - 1):
        call = draw.choice(every)
        plan.append(Fault(call, draw.choice((1, 1, 1, 2, 3, 5)), draw.choice(KINDS[call])))
    return Case(scenario, tuple(plan), choices)
