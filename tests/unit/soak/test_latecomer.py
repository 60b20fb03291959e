"""What an application that starts at the end has to have processed, may have, and must not."""

from __future__ import annotations

import pytest

from tests.soak.latecomer import REFUSED, Life, findings

INPUTS = {0: [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]}
FIRST = Life({0: 2}, {0: 4})
RESET = Life({0: 2}, {0: 4}, {0: 6})
SECOND = Life({0: 7}, {0: 8})


def outputs(*offsets: int) -> list[int]:
    return [INPUTS[0][offset] for offset in offsets]


@pytest.mark.parametrize("offsets", [(4, 5, 6, 7, 8, 9), (2, 3, 4, 5, 6, 7, 8, 9)])
def test_what_came_around_the_first_start_may_be_there(offsets: tuple[int, ...]) -> None:
    assert findings(INPUTS, [FIRST], outputs(*offsets)) == []


@pytest.mark.parametrize(
    ("offsets", "wrong", "expected"),
    [
        ((4, 5, 7, 8, 9), 6, "once"),
        ((4, 5, 6, 6, 7, 8, 9), 6, "once"),
        ((3, 3, 4, 5, 6, 7, 8, 9), 3, "once at most"),
        ((1, 2, 3, 4, 5, 6, 7, 8, 9), 1, "never"),
    ],
    ids=["lost", "doubled", "doubled at the start", "from before the start"],
)
def test_what_is_wrong_is_found(offsets: tuple[int, ...], wrong: int, expected: str) -> None:
    [found] = findings(INPUTS, [FIRST], outputs(*offsets))
    assert f"input 0@{wrong} " in found
    assert found.endswith(f"expected: {expected}")


def test_a_reset_leaves_out_what_came_before_the_next_start() -> None:
    assert findings(INPUTS, [RESET, SECOND], outputs(4, 5, 8, 9)) == []
    [found] = findings(INPUTS, [RESET, SECOND], outputs(4, 5, 6, 8, 9))
    assert "input 0@6 " in found


def test_a_refused_number_is_not_judged_if_a_reset_deleted_its_replay() -> None:
    inputs = {0: [REFUSED + 7] * 6}
    assert findings(inputs, [RESET], []) == []
    assert findings(inputs, [FIRST], []) != []
