"""A schedule follows from its seed."""

from __future__ import annotations

from collections import Counter

from tests.soak.schedule import (
    EACH_MINUTE,
    PRODUCERS,
    REQUESTS,
    Way,
    everything,
    producers,
    stragglers,
)


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert everything(3)(7, 300) == everything(3)(7, 300)


def test_other_seeds_give_other_schedules() -> None:
    assert everything(3)(7, 300) != everything(3)(8, 300)


def test_a_longer_run_begins_with_the_shorter_one() -> None:
    short, long = everything(1)(7, 60), everything(1)(7, 300)
    assert long[: len(short)] == short


def test_ten_minutes_break_everything_in_every_way() -> None:
    drawn = everything(3)(7, 600)
    assert {fault.way for fault in drawn} == set(Way)
    assert {f.target for f in drawn if f.way is Way.HOLD} == set(REQUESTS)


def test_a_single_broker_is_not_killed() -> None:
    assert Way.KILL_BROKER not in {fault.way for fault in everything(1)(7, 600)}


def test_stragglers_are_requests_and_nothing_else() -> None:
    drawn = stragglers("EndTxn", "Produce")(7, 60)
    assert {fault.way for fault in drawn} == {Way.HOLD}
    assert {fault.target for fault in drawn} == {"EndTxn", "Produce"}


def test_a_seed_says_how_many_partitions_share_a_producer() -> None:
    assert [producers(seed) for seed in range(40)] == [producers(seed) for seed in range(40)]
    assert {producers(seed) for seed in range(40)} == set(PRODUCERS)


def test_each_minute_has_what_each_minute_is_to_have() -> None:
    wanted = Counter(way for way, _, _ in EACH_MINUTE)
    for seed in range(20):
        drawn = everything(1)(seed, 180)
        for minute in range(3):
            ways = [f.way for f in drawn if 60 * minute <= f.at_seconds < 60 * (minute + 1)]
            assert not wanted - Counter(ways)
