"""Aggregates of several streams, ranks and days of a zone are exact, whatever kills a worker."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import KafkaService
from tests.support.applications.grouped import Grouped
from tests.support.applications.pipeline import wait_until

RECORDS = 1000


@pytest.fixture
def grouped(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Grouped]:
    name = unique_name("groups")
    made = Grouped(kafka.bootstrap_servers, name, tmp_path / name)
    yield made
    made.stop()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "fault",
    [
        "transaction.after_produce=kill@4",
        "transaction.before_commit=kill@5",
        "transaction.after_commit=kill@5",
        "state.before_write=kill@4",
    ],
)
def test_a_worker_killed_at_a_step_counts_no_record_of_a_group_twice(
    grouped: Grouped, fault: str
) -> None:
    grouped.feed(RECORDS)
    victim = grouped.start_worker(instance="one", faults=[fault], settings=grouped.keeping)
    victim.wait_for_fault(fault.partition("=")[0])
    assert victim.wait() == -signal.SIGKILL
    grouped.feed(RECORDS)
    worker = grouped.start_worker(instance="one", settings=grouped.keeping)
    wait_until(grouped.is_complete, "every group")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    assert grouped.findings() == []
