"""Every error of every call of a database and of the consumer, over the table writer's cycle.

As `test_matrix`, with the rows of a table in place of outputs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support.memory.fault_plan import Fault, Faults
from tests.unit.matrix.cases import COUNTED, chosen
from tests.unit.matrix.play import Choices, Wrong
from tests.unit.matrix.tables import KINDS, play_tables
from tests.unit.matrix.test_matrix import SEED

SAMPLE = 100
DRAWN = 3000

TablesCase = tuple[tuple[Fault, ...], Choices]


def singles() -> Iterator[TablesCase]:
    """Yield each kind of fault of each call, with several choices."""
    most: dict[str, int] = {}
    for choices in COUNTED:
        faults = Faults()
        play_tables(faults, choices)
        most |= {call: max(most.get(call, 0), count) for call, count in faults.totals.items()}
    cases = 0
    for call, kinds in KINDS.items():
        for number in range(1, most.get(call, 1) + 1):
            for kind in kinds:
                for _ in range(6):
                    cases += 1
                    yield (Fault(call, number, kind),), chosen(cases)


def drawn(draw: random.Random) -> TablesCase:
    """Return a case with several faults."""
    calls = draw.choices([*KINDS], k=draw.choice((2, 3, 4)))
    plan = [Fault(c, draw.choice((1, 1, 2, 3, 5)), draw.choice(KINDS[c])) for c in calls]
    return tuple(plan), chosen(draw.randrange(1000))


def wrong_of(cases: Iterator[TablesCase] | list[TablesCase]) -> list[str]:
    """Run cases, and return what the wrong ones show."""
    found: list[str] = []
    for plan, choices in cases:
        try:
            play_tables(Faults(plan), choices)
        except Wrong as error:
            planned = " then ".join(map(str, plan))
            found.append(f"seed {SEED}: {planned} ({choices}): {error}")
    return found


def test_no_error_changes_what_is_in_a_table() -> None:
    draw = random.Random(SEED)
    cases = draw.sample(list(singles()), SAMPLE)
    assert wrong_of(cases + [drawn(draw) for _ in range(SAMPLE)]) == []


@pytest.mark.exhaustive
def test_no_error_of_any_call_changes_what_is_in_a_table() -> None:
    assert wrong_of(singles()) == []


@pytest.mark.exhaustive
def test_no_errors_in_a_row_change_what_is_in_a_table() -> None:
    draw = random.Random(SEED)
    assert wrong_of(drawn(draw) for _ in range(DRAWN)) == []
