"""Every error of every call of a database, over both users of the claim protocol.

As `test_matrix`, with the rows of a table in place of outputs. The table writer also has the errors
of its consumer; an attempt of a backfill, those of a look at another attempt's position.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from eosframework.postgres.tables.position_claims import (
    TRANSITIONS,
    Outcome,
    PartitionTask,
    TaskState,
)
from tests.support.memory.fault_plan import Fault, Faults
from tests.unit.matrix.cases import COUNTED, chosen
from tests.unit.matrix.play import Choices, Wrong
from tests.unit.matrix.tables import ATTEMPT_KINDS, KINDS, play_attempts, play_tables
from tests.unit.matrix.test_matrix import SEED

SAMPLE = 100
DRAWN = 3000

TablesCase = tuple[tuple[Fault, ...], Choices]


@dataclass(frozen=True)
class User:
    """A user of the claim protocol, and the calls that may fail for it."""

    name: str
    play: Callable[[Faults, Choices], list[str]]
    kinds: Mapping[str, tuple[str, ...]]

    def __str__(self) -> str:
        return self.name


USERS = [User("writer", play_tables, KINDS), User("attempt", play_attempts, ATTEMPT_KINDS)]


def singles(user: User) -> Iterator[TablesCase]:
    """Yield each kind of fault of each call, with several choices."""
    most: dict[str, int] = {}
    for choices in COUNTED:
        faults = Faults()
        user.play(faults, choices)
        most |= {call: max(most.get(call, 0), count) for call, count in faults.totals.items()}
    cases = 0
    for call, kinds in user.kinds.items():
        for number in range(1, most.get(call, 1) + 1):
            for kind in kinds:
                for _ in range(6):
                    cases += 1
                    yield (Fault(call, number, kind),), chosen(cases)


def drawn(user: User, draw: random.Random) -> TablesCase:
    """Return a case with several faults."""
    calls = draw.choices([*user.kinds], k=draw.choice((2, 3, 4)))
    plan = [Fault(c, draw.choice((1, 1, 2, 3, 5)), draw.choice(user.kinds[c])) for c in calls]
    return tuple(plan), chosen(draw.randrange(1000))


def wrong_of(user: User, cases: Iterator[TablesCase] | list[TablesCase]) -> list[str]:
    """Run cases, and return what the wrong ones show."""
    found: list[str] = []
    for plan, choices in cases:
        try:
            user.play(Faults(plan), choices)
        except Wrong as error:
            planned = " then ".join(map(str, plan))
            found.append(f"seed {SEED}: {planned} ({choices}): {error}")
    return found


@pytest.mark.parametrize("user", USERS, ids=str)
def test_no_error_changes_what_is_in_a_table(user: User) -> None:
    draw = random.Random(SEED)
    cases = draw.sample(list(singles(user)), SAMPLE)
    assert wrong_of(user, cases + [drawn(user, draw) for _ in range(SAMPLE)]) == []


@pytest.mark.parametrize("user", USERS, ids=str)
@pytest.mark.parametrize("call", ["store.claim", "store.write"])
def test_each_outcome_of_each_call_of_the_store_is_survived_or_ends_for_its_reason(
    user: User, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps cited are those of `position_claims`: P1 claims, P3 writes, P4 decides."""
    taken: Counter[tuple[TaskState, Outcome]] = Counter()
    turn = PartitionTask.turn

    def counted(task: PartitionTask, outcome: Outcome) -> None:
        taken[task.state, outcome] += 1
        turn(task, outcome)

    monkeypatch.setattr(PartitionTask, "turn", counted)
    for kind in user.kinds[call]:
        for number in (1, 2, 3):
            faults = Faults((Fault(call, number, kind),))
            choices = chosen(number)
            endings = user.play(faults, choices)
            if number == 1:
                assert faults.fired, (call, kind)
            survives = kind.startswith(("DatabaseUnavailable", "DatabaseConflict"))
            assert not (survives and endings), (kind, endings)
    assert set(taken) <= set(TRANSITIONS)
    failed = {
        "store.claim": {(TaskState.UNCLAIMED, Outcome.UNAVAILABLE)},
        "store.write": {(TaskState.HELD, Outcome.UNKNOWN), (TaskState.IN_DOUBT, Outcome.CLAIMED)},
    }
    assert failed[call] <= set(taken), "the faults led to the states that they are meant for"


@pytest.mark.parametrize("user", USERS, ids=str)
def test_a_claim_without_an_answer_after_an_unknown_outcome_keeps_the_doubt(user: User) -> None:
    for first in ("DatabaseUnavailable", "DatabaseUnavailable done", "DatabaseUnavailable late"):
        for second in ("DatabaseUnavailable", "DatabaseUnavailable done"):
            plan = (Fault("store.write", 1, first), Fault("store.claim", 1, second))
            faults = Faults(plan)
            assert user.play(faults, chosen(1)) == []
            assert faults.fired == list(plan)


@pytest.mark.exhaustive
@pytest.mark.parametrize("user", USERS, ids=str)
def test_no_error_of_any_call_changes_what_is_in_a_table(user: User) -> None:
    assert wrong_of(user, singles(user)) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("user", USERS, ids=str)
def test_no_errors_in_a_row_change_what_is_in_a_table(user: User) -> None:
    draw = random.Random(SEED)
    assert wrong_of(user, (drawn(user, draw) for _ in range(DRAWN))) == []
