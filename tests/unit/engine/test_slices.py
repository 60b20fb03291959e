"""Slices are as large as the clock allows, also where the machine is busy."""

from __future__ import annotations

from eosframework.engine.task.run_slices import (
    FIRST_RECORDS,
    SLICE_RECORDS,
    RecordRun,
    SliceSize,
)
from tests.unit.engine.messages import Sent


def sizes(*seconds_per_record: float, stands_still: float = 0.0) -> list[int]:
    """Return the sizes of slices whose records take so long."""
    size, found = SliceSize(), list[int]()
    for seconds in seconds_per_record:
        found.append(size.limit())
        size.took(seconds * found[-1] + stands_still, found[-1])
    return found


def test_fast_records_are_run_many_at_a_time_and_slow_ones_few() -> None:
    assert sizes(*[1e-7] * 3) == [FIRST_RECORDS, SLICE_RECORDS, SLICE_RECORDS]
    assert sizes(*[4e-6] * 3) == [FIRST_RECORDS, 5000, 5000]
    assert sizes(*[0.01] * 3) == [FIRST_RECORDS, 2, 2]
    assert sizes(*[5.0] * 3) == [FIRST_RECORDS, 1, 1]
    assert sizes(*[0.0] * 3) == [FIRST_RECORDS, SLICE_RECORDS, SLICE_RECORDS]


def test_records_that_become_slow_are_few_at_once() -> None:
    assert max(sizes(*[5e-6] * 5, *[0.01] * 5)[6:]) <= 10


def test_a_slow_start_is_soon_forgotten() -> None:
    assert sizes(1e-3, *[5e-6] * 9)[-1] > 1000


def test_a_slice_that_stood_still_leaves_the_others_large() -> None:
    size = SliceSize()
    for number in range(40):
        records = size.limit()
        size.took(5e-6 * records + (0.05 if number % 4 == 3 else 0), records)
        assert number < 5 or size.limit() > 300


def test_a_run_ends_between_two_records_once_its_time_is_over() -> None:
    messages, now = [Sent(b"", offset) for offset in range(5)], iter([0.0, 1.0])
    run = RecordRun(messages, [], 1.0, lambda: next(now))
    assert [*run] == messages[:2]
    assert run.done == 2


def test_a_run_with_time_runs_all_and_one_without_runs_one() -> None:
    messages = [Sent(b"", offset) for offset in range(3)]
    for until, done in ((1.0, 3), (-1.0, 1)):
        run = RecordRun(messages, [], until, lambda: 0.0)
        assert [*run] == messages[:done]
        assert run.done == done
