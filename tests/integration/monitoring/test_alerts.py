"""Each alert fires when it should and is silent when it should be, by Prometheus' own judgement."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from tests.support.processes.programs import REPOSITORY
from tests.support.servers.promtool import promtool
from tests.support.verifiers.alert_cases import CASES, Series

ALERTS = REPOSITORY / "docker" / "prometheus" / "alerts.yml"


def asked(alert: str, series: Series, *, fires: bool) -> dict[str, Any]:
    """What promtool is to compare."""
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if fires else []
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'group by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": "1h",
                "exp_samples": samples,
            }
        ],
    }


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What promtool finds wrong, of all cases at once: to start it takes longest."""
    file = tmp_path_factory.mktemp("alerts") / "test.yml"
    cases = [
        asked(alert, series, fires=fires)
        for alert, (firing, silent) in CASES.items()
        for series, fires in ((firing, True), (silent, False))
    ]
    content = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases}
    file.write_text(yaml.safe_dump(content))
    command = [str(promtool()), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == ("alertname" in done.stdout + done.stderr), done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_only_then(alert: str, complaints: str) -> None:
    assert f'alertname="{alert}"' not in complaints, complaints


def test_every_alert_is_tested() -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    assert {rule["alert"] for group in groups for rule in group["rules"]} == set(CASES)
