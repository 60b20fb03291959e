"""How far a restore is: what a terminal shows."""

from __future__ import annotations

import pytest
from rich.console import Console

from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.process.progress import RestoreProgress, notebook_line, total


def test_a_restore_shows_what_is_left_how_fast_it_goes_and_how_long_it_takes() -> None:
    progress = RestoreProgress()
    assert not progress.look(WorkerCounts(), 9.0)
    assert progress.look(WorkerCounts(restoring=1000), 10.0)
    assert progress.text == "1,000 of 1,000 records to restore"
    assert progress.look(WorkerCounts(restoring=600), 12.0)
    assert progress.text == "600 of 1,000 records to restore  200/s  3 s left"


def test_what_comes_with_more_partitions_makes_the_whole_larger() -> None:
    progress = RestoreProgress()
    progress.look(WorkerCounts(restoring=1000), 10.0)
    progress.look(WorkerCounts(restoring=500), 11.0)
    progress.look(WorkerCounts(restoring=2500), 12.0)
    assert progress.text.startswith("2,500 of 3,000 records")
    assert not progress.look(WorkerCounts(), 13.0)
    progress.look(WorkerCounts(restoring=70), 14.0)
    assert progress.text == "70 of 70 records to restore"


def test_a_restore_is_drawn_as_a_bar() -> None:
    progress = RestoreProgress()
    progress.look(WorkerCounts(restoring=1000), 10.0)
    progress.look(WorkerCounts(restoring=500), 11.0)
    console = Console(width=120)
    with console.capture() as drawn:
        console.print(progress.bar())
    assert "━" in drawn.get()
    assert "500 of 1,000 records to restore" in drawn.get()


def test_a_supervisor_shows_what_all_its_workers_have_to_restore() -> None:
    assert total([WorkerCounts(restoring=3), WorkerCounts(restoring=4)]).restoring == 7


def test_a_notebook_shows_one_line_that_is_written_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with notebook_line() as show:
        show(WorkerCounts(restoring=70))
        show(WorkerCounts(records=1000, lag=5))
    first, second = capsys.readouterr().out.removeprefix("\r").removesuffix("\n").split("\r")
    assert first == "70 of 70 records to restore"
    assert "1,000 records  lag 5  commits 0" in second
