"""The topology of the example with a service: orders meet their customers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eosframework.testing import TopologyTestDriver, crash_everywhere
from eosframework.topology.lint.lint_pass import lint
from eosframework.topology.loader import load_app

FOLDER = Path(__file__).parents[3] / "examples" / "enrichment"
APP = str(FOLDER / "app.py")
DAY = 24 * 60 * 60 * 1000


def order(number: int, customer: str, cents: int) -> bytes:
    identity = f"00000000-0000-0000-0000-{number:012}"
    return json.dumps({"id": identity, "customer": customer, "cents": cents}).encode()


def anna(country: str) -> bytes:
    return json.dumps({"name": "Anna", "country": country}).encode()


def test_it_has_no_findings() -> None:
    assert lint(load_app(APP)) == []


def test_the_test_in_its_readme_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["enriched"].value.country == "AT"


def test_an_order_keeps_the_country_of_its_time_and_an_invalid_one_is_a_dead_letter() -> None:
    driver = TopologyTestDriver(APP)
    for number, country in enumerate(("AT", "DE")):
        driver.send("shop.customers", anna(country), key="anna")
        driver.run()
        driver.send("shop.orders", order(number, "anna", 100), key="anna")
        driver.run()
    driver.send("shop.orders", order(2, "nobody", 100), key="nobody")
    driver.send("shop.orders", b'{"id": "x", "customer": "anna", "cents": -1}', key="anna")
    driver.run()
    assert [r.value.country for r in driver.read("shop.enriched")] == ["AT", "DE", None]
    assert len(driver.read("shop.dead")) == 1


@pytest.mark.exhaustive
def test_a_crash_at_any_step_changes_nothing() -> None:
    def scenario(driver: TopologyTestDriver) -> None:
        driver.send("shop.customers", anna("AT"), key="anna")
        driver.run()
        for number in range(3):
            time = number * DAY // 2
            driver.send("shop.orders", order(number, "anna", 100), key="anna", timestamp=time)
        driver.run()

    assert crash_everywhere(APP, scenario) > 5
