"""Readings are shared, bounded, and kept while newer attempts fail."""

from __future__ import annotations

import threading
from collections import Counter

from eosframework.errors import ClusterUnreachable
from eosframework.operations.console.readings import Readings
from eosframework.serialization.bounds import READINGS, READINGS_AT_ONCE, READINGS_BYTES


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_failure_keeps_the_value_and_says_its_age_and_a_success_ends_it() -> None:
    clock = Clock()
    readings = Readings(clock)
    answers: list[object] = ["one", ClusterUnreachable("the cluster is away"), "two"]

    def read() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    first = readings.get("it", read, max_age_seconds=1, wait_seconds=10)
    assert (first.value, first.error) == ("one", None)
    assert readings.get("it", read, max_age_seconds=1, wait_seconds=10) == first
    clock.now = 1.0
    failed = readings.get("it", read, max_age_seconds=1, wait_seconds=10)
    assert (failed.value, failed.read_at) == ("one", first.read_at)
    assert failed.error == "the cluster is away"
    clock.now = 2.0
    again = readings.get("it", read, max_age_seconds=1, wait_seconds=10)
    assert (again.value, again.error) == ("two", None)


def test_requests_join_one_attempt_and_none_waits_longer_than_its_time() -> None:
    readings, release, calls = Readings(), threading.Event(), []

    def read() -> str:
        calls.append(1)
        assert release.wait(60)
        return "done"

    early = [readings.get("it", read, max_age_seconds=1, wait_seconds=0.01) for _ in range(20)]
    assert all(one.is_reading and one.value is None and one.error is None for one in early)
    release.set()
    assert readings.get("it", read, max_age_seconds=60, wait_seconds=60).value == "done"
    assert len(calls) == 1


def test_attempts_that_hang_are_bounded_in_number() -> None:
    readings, release = Readings(), threading.Event()
    for number in range(READINGS_AT_ONCE.value):
        readings.get(f"n{number}", release.wait, max_age_seconds=1, wait_seconds=0)
    refused = readings.get("more", release.wait, max_age_seconds=1, wait_seconds=0)
    assert refused.error == "the console is busy; ask again"
    release.set()


def test_an_unexpected_error_is_a_message_too() -> None:
    reading = Readings().get("it", lambda: 1 // 0, max_age_seconds=1, wait_seconds=60)
    assert reading.error is not None
    assert reading.error.startswith("ZeroDivisionError")


def kept(count: int, value: str) -> int:
    """Return how many of `count` readings with a value are still remembered."""
    readings, calls = Readings(), Counter[str]()

    def ask(name: str) -> None:
        def read() -> str:
            calls[name] += 1
            return value

        found = readings.get(name, read, max_age_seconds=1000, wait_seconds=60)
        assert found.value == value, "also where it is too large to be remembered"

    names = [f"{number:04}" for number in range(count)]
    for name in names:
        ask(name)
    for name in reversed(names):
        ask(name)
        if calls[name] > 1:
            return len(names) - names.index(name) - 1
    return count


def test_what_is_remembered_is_bounded_in_number_and_in_bytes() -> None:
    most = READINGS.value
    assert [kept(most + more, "x") for more in (-1, 0, 1)] == [most - 1, most, most]
    whole = READINGS_BYTES.value // 4 - len("0000") - len('""')
    assert [kept(5, "x" * (whole + more)) for more in (-1, 0, 1)] == [4, 4, 3]
    assert kept(1, "x" * READINGS_BYTES.value) == 0
