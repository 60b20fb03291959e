"""Watermarks in a task's transactions: when they are due, and what they contain."""

from __future__ import annotations

from eosframework.engine.operators.watermarks import WATERMARK_KEY, Announcement, decode_watermark
from eosframework.engine.task.task_time import Announcing, Downstream, watermarks

KEYED = Downstream("keyed", 2, 0)
HELD = Downstream("held", 1, 30)


def committed(one: Announcing, time: int, now: float, *, is_idle: bool = False) -> None:
    """Announce and commit, if it is due."""
    if one.is_due(time, now, is_idle=is_idle):
        one.announced(time, now, is_idle=is_idle)
    one.committed()


def test_a_task_without_downstream_announces_nothing() -> None:
    assert not Announcing(0).is_due(100, 0.0)


def test_the_first_transaction_announces_and_later_ones_at_intervals() -> None:
    one = Announcing(3, [KEYED], 0.5)
    assert one.is_due(0, 0.0)
    committed(one, 0, 0.0)
    assert not one.is_due(100, 0.4)
    assert one.is_untold(100)
    assert one.is_due(100, 0.5)
    committed(one, 100, 0.5)
    assert not one.is_due(100, 9.0)


def test_what_a_dropped_transaction_announced_is_due_again() -> None:
    one = Announcing(3, [KEYED], 0.5)
    committed(one, 0, 0.0)
    one.announced(100, 0.6)
    one.drop()
    assert one.is_due(100, 0.6)


def test_idleness_is_announced_at_once_and_taken_back_at_once() -> None:
    one = Announcing(3, [KEYED], 0.5)
    committed(one, 100, 0.0)
    assert one.is_due(100, 0.1, is_idle=True)
    committed(one, 100, 0.1, is_idle=True)
    assert one.is_idle
    assert not one.is_due(100, 0.2, is_idle=True)
    assert one.is_due(100, 0.2)


def test_each_partition_gets_one_record_with_all_tasks_of_the_transaction() -> None:
    both = [Announcing(task, [KEYED, HELD]) for task in (3, 4)]
    for one, time in zip(both, (100, 200), strict=True):
        one.announced(time, 0.0)
    found = [*watermarks(both)]
    assert [(topic, partition) for topic, _, _, partition, *_ in found] == [
        ("keyed", 0),
        ("keyed", 1),
        ("held", 0),
    ]
    assert {key for _, _, key, *_ in found} == {WATERMARK_KEY}
    assert decode_watermark(found[0][1]) == [
        Announcement(3, 100, is_idle=False),
        Announcement(4, 200, is_idle=False),
    ]
    assert [one.time for one in decode_watermark(found[2][1])] == [70, 170]
