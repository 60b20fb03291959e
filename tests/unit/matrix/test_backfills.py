"""Every error of every call over the attempts of a backfill's task; see `test_matrix`."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest

from tests.support.memory.fault_plan import Fault, Faults
from tests.unit.matrix.backfills import KINDS, play_backfill
from tests.unit.matrix.play import Wrong
from tests.unit.matrix.test_matrix import SEED

SAMPLE = 60
DRAWN = 2000
SIZES = (1, 2, 5)

BackfillCase = tuple[tuple[Fault, ...], int]


def singles() -> Iterator[BackfillCase]:
    """Yield each kind of fault of each call, with rows in pieces of all sizes."""
    for size in SIZES:
        faults = Faults()
        play_backfill(faults, size)
        for call, kinds in KINDS.items():
            for number in range(1, faults.totals[call] + 3):
                for kind in kinds:
                    yield (Fault(call, number, kind),), size


def drawn(draw: random.Random) -> BackfillCase:
    """Return a case with several faults."""
    calls = draw.choices([*KINDS], k=draw.choice((2, 3, 4)))
    plan = [Fault(c, draw.choice((1, 1, 2, 3, 5)), draw.choice(KINDS[c])) for c in calls]
    return tuple(plan), draw.choice(SIZES)


def wrong_of(cases: Iterable[BackfillCase]) -> list[str]:
    """Run cases, and return what the wrong ones show."""
    found: list[str] = []
    for plan, size in cases:
        try:
            play_backfill(Faults(plan), size)
        except Wrong as error:
            planned = " then ".join(map(str, plan))
            found.append(f"seed {SEED}: {planned} (rows by {size}): {error}")
    return found


def test_no_error_changes_what_a_task_of_a_backfill_leaves() -> None:
    draw = random.Random(SEED)
    cases = draw.sample(list(singles()), SAMPLE)
    assert wrong_of(cases + [drawn(draw) for _ in range(SAMPLE)]) == []


@pytest.mark.exhaustive
def test_no_error_of_any_call_changes_what_a_task_of_a_backfill_leaves() -> None:
    assert wrong_of(singles()) == []


@pytest.mark.exhaustive
def test_no_errors_in_a_row_change_what_a_task_of_a_backfill_leaves() -> None:
    draw = random.Random(SEED)
    assert wrong_of(drawn(draw) for _ in range(DRAWN)) == []
