"""Calls that never return are abandoned, and the others are not affected."""

from __future__ import annotations

import threading

import pytest

from eosframework.kafka.client.call_threads import CallThreads, Hung


def test_results_come_in_order_from_more_items_than_threads() -> None:
    threads = CallThreads(3)
    assert threads.each(lambda n: n * n, range(20)) == [n * n for n in range(20)]
    threads.stop()


def test_a_call_that_does_not_return_is_left_behind_and_replaced() -> None:
    threads, release = CallThreads(2), threading.Event()
    results = threads.each(
        lambda wait: release.wait(100) if wait else False, [True, False, True], 2
    )
    assert [isinstance(result, Hung) for result in results] == [True, False, True]
    assert threads.each(lambda n: n, [1, 2, 3], 60) == [1, 2, 3]
    release.set()
    threads.stop()


def test_an_exception_comes_out() -> None:
    threads = CallThreads(2)
    with pytest.raises(ZeroDivisionError):
        threads.each(lambda n: 1 // n, [1, 0])
    threads.stop()


def test_a_call_that_is_known_to_be_stalled_is_left_behind_before_the_time_is_over() -> None:
    threads, release = CallThreads(2), threading.Event()
    asked: list[float] = []

    def is_stalled(wait: bool, waited_seconds: float) -> bool:
        asked.append(waited_seconds)
        return wait and waited_seconds > 0.25

    results = threads.each(
        lambda wait: release.wait(100) if wait else False, [True, False], 60, is_stalled=is_stalled
    )
    assert isinstance(results[0], Hung)
    assert results[1] is False
    assert asked[-1] == pytest.approx(0.3)
    release.set()
    threads.stop()
