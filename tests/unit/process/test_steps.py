"""A long step shows what is done of how much, how fast it goes, and how long it takes."""

from __future__ import annotations

import pytest

from eosframework.process.steps import StepText, step_line


def test_a_step_shows_its_total_its_rate_and_the_time_left() -> None:
    now = [10.0]
    text = StepText(lambda: now[0])
    assert text.of("output", 0, 3000) == "output: 0 of 3,000 records"
    now[0] = 14.0
    assert text.of("output", 1000, 3000) == "output: 1,000 of 3,000 records  250/s  8 s left"
    assert text.of("input", 5, 10) == "input: 5 of 10 records"
    assert text.of("waiting for a transaction", 0, 0) == "waiting for a transaction"


def test_nothing_is_drawn_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with step_line() as show:
        show("output", 1, 2)
    assert capsys.readouterr().err == ""
