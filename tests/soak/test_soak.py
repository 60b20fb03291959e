"""A minute of soak is part of every test run, ten of `make test-all`; more by `make soak`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import TOLD
from tests.soak.checker import Kind
from tests.soak.run import Result, Settings, soak
from tests.soak.schedule import EACH_MINUTE, everything, stragglers

EVENTS = ("output_rejected",)
"""Log events that show an effect of faults: the brokers refused outputs."""

LONG_EVENTS = (*EVENTS, "state_discarded", "restore_held_back", "task_fenced")
"""Damaged files were found, tasks waited for a transaction in a changelog, zombies woke up."""

SOAK_SECONDS = 60
LONG_SOAK_SECONDS = 600
STRAGGLERS_SECONDS = 25
SEED_OF_STRAGGLERS = 1
EACH = "worker.ids=partition"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seconds", "events"),
    [
        (SOAK_SECONDS, EVENTS),
        pytest.param(LONG_SOAK_SECONDS, LONG_EVENTS, marks=pytest.mark.exhaustive),
    ],
    ids=["a minute", "ten minutes"],
)
def test_random_faults_leave_a_clean_history(
    seconds: float,
    events: Sequence[str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    settings = Settings(random.SystemRandom().randrange(1_000_000), seconds, everything(nodes=1))
    result = soak(settings, tmp_path, print)
    record_property(TOLD, f"{settings.command}: {str(result).splitlines()[0]}")
    assert result.clean, f"{result}\nthe same schedule again: {settings.command}"
    fired = {fault.way for fault in result.fired}
    assert len(fired) > 5, result
    assert fired >= {way for way, _, _ in EACH_MINUTE}, result
    logs = [file.read_text(errors="replace") for file in (tmp_path / "pipeline").glob("*.log")]
    missing = [event for event in events if not any(event in log for log in logs)]
    assert not missing, f"{missing} did not happen: {settings.command}"


def late_commits(directory: Path, *, producers: str = EACH, unprotected: bool = False) -> Result:
    """Let commits arrive late, twice a second, and nothing else."""
    settings = Settings(
        SEED_OF_STRAGGLERS,
        STRAGGLERS_SECONDS,
        stragglers("EndTxn"),
        unprotected=unprotected,
        producers=lambda _: producers,
    )
    return soak(settings, directory, print)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize(
    "producers", ["worker.ids=worker", pytest.param(EACH, marks=pytest.mark.exhaustive)]
)
def test_late_commits_leave_a_clean_history(tmp_path: Path, producers: str) -> None:
    result = late_commits(tmp_path, producers=producers)
    assert result.clean, result
    assert len(result.fired) > 10, result


@pytest.mark.exhaustive
@pytest.mark.slow
def test_without_the_protection_late_commits_tear_transactions(tmp_path: Path) -> None:
    result = late_commits(tmp_path, unprotected=True)
    found = {anomaly.kind for anomaly in result.anomalies}
    assert found >= {Kind.ABORTED_READ, Kind.TORN, Kind.DUPLICATE}, result
