"""The page and the alerts follow from what is declared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eosframework.application.monitoring.metrics.catalogue import METRICS, Kind
from eosframework.cli import main
from eosframework.cli.explain import metrics_page

REPOSITORY = Path(__file__).resolve().parents[4]


def test_the_page_is_what_the_command_prints() -> None:
    page = (REPOSITORY / "docs" / "metrics.md").read_text()
    assert page == metrics_page(METRICS), (
        "run: eosframework explain metrics --markdown > docs/metrics.md"
    )


def test_alerts_ask_only_for_metrics_that_are_told() -> None:
    rules = (REPOSITORY / "docker" / "prometheus" / "alerts.yml").read_text()
    told = {metric.full_name for metric in METRICS}
    told |= {f"{m.full_name}_bucket" for m in METRICS if m.kind is Kind.HISTOGRAM}
    assert set(re.findall(r"\beosframework_[a-z_]+", rules)) <= told


def test_metrics_that_are_named_in_advice_exist() -> None:
    names = {metric.name for metric in METRICS}
    for metric in METRICS:
        for text in (metric.what, metric.normal, metric.otherwise):
            named = set(re.findall(r"`([a-z_]+)`", text)) - {"running", "fenced", "grace", "ttl"}
            assert named - {"recovering", "unclaimed"} <= names, metric.name


def test_the_command_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "metrics"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "eosframework_held_back_records (gauge by topic)" in shown
    assert "otherwise: Rising without end: a transaction upstream hangs." in shown
