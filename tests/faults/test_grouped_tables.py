"""Rows that move between groups count in one group each, whatever happens to the worker."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import KafkaService
from tests.support.applications.grouped_rows import GroupedRows

CHANGES = 200


@pytest.fixture
def rows(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path, seed: int
) -> Iterator[GroupedRows]:
    name = unique_name("grouped")
    made = GroupedRows(kafka.bootstrap_servers, name, tmp_path / name, seed, partitions=3)
    yield made
    made.stop()


def finish(rows: GroupedRows) -> None:
    rows.finish(instance="one", settings=rows.keeping)
    assert rows.findings() == []


@pytest.mark.parametrize(
    "fault",
    [
        "transaction.after_produce=kill@9",
        pytest.param("transaction.before_commit=kill@9", marks=pytest.mark.exhaustive),
        pytest.param("transaction.after_commit=kill@9", marks=pytest.mark.exhaustive),
        pytest.param("state.before_write=kill@9", marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_killed_between_both_halves_of_a_move_counts_each_row_once(
    rows: GroupedRows, fault: str
) -> None:
    """Small transactions end between the halves that reach different tasks."""
    rows.feed(CHANGES)
    victim = rows.start_worker(instance="one", faults=[fault], settings=rows.keeping)
    rows.feed_until_fault(victim, fault.partition("=")[0])
    assert victim.wait() == -signal.SIGKILL
    rows.feed(CHANGES)
    finish(rows)


@pytest.mark.exhaustive
def test_rows_are_taken_back_after_kills_in_a_row_and_the_loss_of_stores(
    rows: GroupedRows,
) -> None:
    for number in range(5):
        rows.feed(CHANGES)
        fault = f"transaction.after_produce=kill@{3 + 4 * number}"
        victim = rows.start_worker(instance="one", faults=[fault], settings=rows.keeping)
        rows.feed_until_fault(victim, "transaction.after_produce")
        assert victim.wait() == -signal.SIGKILL
        if number % 2:
            shutil.rmtree(rows.state)
    finish(rows)
