"""The console judges the alerts as Prometheus does, over the same series."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest

from eosframework.application.monitoring.metrics.alerts import ALERTS, Judge, rules_file
from eosframework.application.monitoring.metrics.catalogue import PREFIX
from eosframework.application.monitoring.metrics.expressions import JOB, quantile_of
from eosframework.operations.console.memory import KEPT, SAMPLE_SECONDS, Memory
from tests.support.processes.programs import REPOSITORY
from tests.support.verifiers.alert_cases import CASES, Series


def test_the_file_of_rules_is_what_the_command_prints() -> None:
    file = REPOSITORY / "docker" / "prometheus" / "alerts.yml"
    assert file.read_text() == rules_file(), (
        "run: eosframework explain alerts > docker/prometheus/alerts.yml"
    )


def numbers(text: str) -> Iterator[float]:
    """The values of promtool's notation: `7x60`, `0+10x60`, `90-1x60` and single ones."""
    for part in text.split():
        found = re.fullmatch(r"(\d+)(?:([+-]\d+))?(?:x(\d+))?", part)
        assert found is not None, part
        first, step, times = found.groups()
        for number in range(int(times or 0) + 1):
            yield int(first) + int(step or 0) * number


def fires_within_an_hour(alert: str, series: Series) -> bool:
    memory, judge = Memory(), Judge()
    values = {name: list(numbers(text)) for name, text in series.items()}
    fired: set[str] = set()
    for minute in range(61):
        at = 1_000_000 + minute * 60.0
        up = [
            v[minute] for n, v in values.items() if n.startswith("up{") and JOB in n.split(",")[0]
        ]
        if up == [0]:
            memory.miss("i", at)
        else:
            memory.take("i", at, text_of(values, minute))
        fired = {firing.alert.name for firing in judge.firing(memory)}
    return alert in fired


def text_of(values: Mapping[str, list[float]], minute: int) -> str:
    lines = [f"{name} {v[minute]}" for name, v in values.items() if minute < len(v)]
    return "\n".join(sorted(line for line in lines if line.startswith(PREFIX))) + "\n"


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_only_then(alert: str) -> None:
    firing, silent = CASES[alert]
    assert fires_within_an_hour(alert, firing)
    assert not fires_within_an_hour(alert, silent)


def test_every_alert_is_judged_over_metrics_that_the_console_keeps() -> None:
    assert {alert.name for alert in ALERTS} == set(CASES)
    assert "commit_seconds_bucket" in KEPT


def test_a_counter_that_starts_again_has_risen_by_its_new_value() -> None:
    memory = Memory()
    name = f'{PREFIX}fences_total{{application="a"}}'
    for number, value in enumerate((5, 7, 1, 2)):
        memory.take("i", number * SAMPLE_SECONDS, f"{name} {value}\n")
    [(_, samples)] = memory.series("fences_total", 0.0)
    assert [value for _, value in samples] == [5, 7, 1, 2]
    judged = Judge().firing(memory)
    assert [firing.summary for firing in judged] == ["Processes of a are fenced repeatedly"]


def test_a_process_that_is_gone_keeps_no_newest_value() -> None:
    memory = Memory()
    memory.take("i", 0.0, f'{PREFIX}lag_records{{application="a",topic="t"}} 7\n')
    assert [value for _, value in memory.latest("lag_records")] == [7]
    memory.miss("i", 10.0)
    assert not list(memory.latest("lag_records"))


def test_a_quantile_lies_inside_its_bucket() -> None:
    infinite = float("inf")
    buckets = {0.1: 50.0, 0.2: 100.0, infinite: 100.0}
    assert quantile_of(0.5, buckets) == pytest.approx(0.1)
    assert quantile_of(0.75, buckets) == pytest.approx(0.15)
    assert quantile_of(0.99, {0.1: 1.0, infinite: 100.0}) == 0.1
    assert quantile_of(0.99, {0.1: 0.0, infinite: 0.0}) is None


def test_the_notation_of_promtool_is_read() -> None:
    assert list(numbers("0 3x2 0+10x2 5-1x1")) == [0, 3, 3, 3, 0, 10, 20, 5, 4]
