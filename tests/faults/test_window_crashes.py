"""Windows close once, whatever happens to the worker that closes them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import KafkaService
from tests.support.applications.pipeline import wait_until
from tests.support.applications.windowed import Windowed

RECORDS = 2000


@pytest.fixture
def windowed(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Windowed]:
    name = unique_name("windows")
    made = Windowed(kafka.bootstrap_servers, name, tmp_path / name)
    yield made
    made.stop()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("transaction.after_produce=kill@3", marks=pytest.mark.exhaustive),
        "transaction.before_commit=kill@5",
        pytest.param("transaction.after_commit=kill@5", marks=pytest.mark.exhaustive),
        pytest.param("state.before_write=kill@4", marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_killed_at_a_step_closes_no_window_twice_and_none_too_early(
    windowed: Windowed, fault: str
) -> None:
    """The last windows close by the clock: not before what the dead worker left has arrived.

    On a quiet machine the last of these steps are those of a transaction that only closes windows.
    """
    windowed.feed(RECORDS)
    victim = windowed.start_worker(instance="one", faults=[fault], settings=windowed.keeping)
    victim.wait_for_fault(fault.partition("=")[0])
    assert victim.wait() == -signal.SIGKILL
    windowed.feed(RECORDS)
    worker = windowed.start_worker(instance="one", settings=windowed.keeping)
    wait_until(windowed.is_complete, "every window")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    assert windowed.findings() == []
