"""The alerts of the example with payments."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from eosframework.testing import TopologyTestDriver, crash_everywhere
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import load_app

FOLDER = Path(__file__).parents[3] / "examples" / "payments"
APP = str(FOLDER / "app.py")
MINUTE = 60_000


def payment(number: int, minute: float, cents: int, *, approved: bool = True) -> dict[str, Any]:
    at = round(minute * MINUTE)
    return {"id": f"p-{number}", "at": at, "amount_cents": cents, "approved": approved}


def test_it_has_no_findings() -> None:
    assert lint(load_app(APP)) == []


def test_the_test_in_its_readme_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    assert len(names["alerts"]) == 2


def test_a_payment_without_a_positive_amount_is_a_dead_letter() -> None:
    driver = TopologyTestDriver(APP)
    driver.send("payments", payment(1, 60, 0), key="card")
    driver.run()
    [dead] = driver.read("payments.dead")
    assert b"has the amount 0 cents" in (dict(dead.headers)["__streams.errors.exception"] or b"")


@pytest.mark.parametrize("seed", range(5))
def test_duplicates_never_change_the_alerts(seed: int) -> None:
    drawn = random.Random(seed)
    payments = [
        payment(n, 60 + n * 0.7, drawn.choice([100, 40_000]), approved=drawn.random() < 0.6)
        for n in range(60)
    ]
    twice = [one for each in payments for one in [each] * drawn.choice([1, 1, 2])]
    last = payment(1000, 500, 1)

    def alerts(sent: list[dict[str, Any]]) -> list[Any]:
        driver = TopologyTestDriver(APP)
        for each in [*sent, last]:
            driver.send("payments", each, key="card")
        driver.run()
        return [record.value for record in driver.read("payments.alerts")]

    once = alerts(payments)
    assert {alert["reason"] for alert in once} == {"spent too much", "declined often"}
    assert alerts(twice) == once


def test_a_crash_at_any_step_changes_nothing() -> None:
    def scenario(driver: TopologyTestDriver) -> None:
        for number, minute in enumerate((60, 61, 62, 62)):
            driver.send("payments", payment(number, minute, 60_000), key="card")
        for number in (10, 11, 12):
            driver.send("payments", payment(number, 63, 1, approved=False), key="card")
        driver.run()
        driver.send("payments", payment(20, 90, 1), key="card")
        driver.run()

    assert crash_everywhere(APP, scenario) > 5
