"""The question before what cannot be undone: who does not say yes has said no."""

from __future__ import annotations

import io

import pytest

from eosframework.cli.confirming import confirmed
from eosframework.errors import ConfigurationError


@pytest.mark.parametrize(
    ("answer", "agreed"),
    [("y\n", True), ("YES \n", True), ("\n", False), ("n\n", False), ("orders.yaml\n", False)],
)
def test_only_a_yes_is_an_agreement(
    answer: str, agreed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert confirmed() is agreed
    asked = capsys.readouterr()
    assert (asked.out, "[y/N]" in asked.err) == ("", True)


@pytest.mark.parametrize("stdin", [io.StringIO(), None], ids=["ended", "closed"])
def test_where_nobody_answers_the_way_to_do_it_unasked_is_named(
    stdin: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(ConfigurationError, match="--yes"):
        confirmed()
