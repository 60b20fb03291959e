from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from eosframework.demo.services import deal, kill_points


@pytest.mark.parametrize("kills", [0, 1, 2, 3, 12, 100])
def test_each_kind_has_its_share_and_databases_are_killed_less_often(kills: int) -> None:
    dealt = Counter(deal(kills, random.Random(kills)))
    assert sum(dealt.values()) == kills
    assert abs(dealt["worker"] - dealt["relay"]) <= 1
    assert dealt["database"] <= max(kills // 5, 1)
    assert dealt["database"] >= int(kills > 2)


def test_kills_are_spread_over_the_run_in_order() -> None:
    points = kill_points(1000, 8, random.Random(1))
    assert points == sorted(points)
    assert all(a < b for a, b in pairwise(points))
    assert points[0] >= 50
    assert points[-1] < 1000
