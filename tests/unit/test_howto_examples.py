"""The complete examples of how-tos load, and every function that they name exists."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib import import_module
from pathlib import Path

import pytest

from eosframework.testing import TopologyTestDriver

HOWTOS = Path(__file__).resolve().parents[2] / "docs" / "howto"

PAGES = (
    "batches",
    "call-a-service",
    "dead-letters",
    "effects-once",
    "growing-partitions",
    "joins",
    "process",
    "state",
    "tables",
    "topic-patterns",
    "wall-clock",
)
"""Pages whose blocks are files of one folder: modules that begin with "# NAME.py", and topologies.

Other pages show parts of an application, or have their own test."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], list[Path]]]:
    """Write the modules and the topologies of a page, and return the topologies."""

    def write(page: str) -> list[Path]:
        text = (HOWTOS / f"{page}.md").read_text(encoding="utf-8")
        for name, module in re.findall(r"```python\n# (\w+)\.py\n(.*?)```", text, re.DOTALL):
            (tmp_path / f"{name}.py").write_text(module)
            monkeypatch.delitem(sys.modules, name, raising=False)
        topologies = re.findall(r"```yaml\n(application: .*?)```", text, re.DOTALL)
        found = [tmp_path / f"topology-{number}.yaml" for number in range(len(topologies))]
        for file, topology in zip(found, topologies, strict=True):
            file.write_text(topology)
        return found

    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield write
    for name in {file.stem for file in tmp_path.glob("*.py")} - before:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("page", PAGES)
def test_the_topologies_of_a_page_load(files: Callable[[str], list[Path]], page: str) -> None:
    found = files(page)
    assert found
    for file in found:
        TopologyTestDriver(str(file))


def test_windows_count_clicks_per_page_and_hour(files: Callable[[str], list[Path]]) -> None:
    [file] = files("state")
    driver = TopologyTestDriver(str(file))
    for time in ("10:05", "10:40", "11:30", "12:10"):
        driver.send("clicks", {"page": "/", "at": f"2026-03-01T{time}:00+00:00"})
    driver.run()
    assert [(r.key, r.value.value) for r in driver.read("clicks.hourly")] == [("/", 2), ("/", 1)]


def test_an_order_gets_the_name_of_its_customer(files: Callable[[str], list[Path]]) -> None:
    [file] = files("joins")
    driver = TopologyTestDriver(str(file))
    driver.send("shop.customers", {"name": "Anna"}, key="a")
    driver.send("shop.orders", {"n": 1}, key="a")
    driver.send("shop.orders", {"n": 2}, key="b")
    driver.run()
    assert [r.value for r in driver.read("shop.named")] == [
        {"n": 1, "customer": "Anna"},
        {"n": 2, "customer": None},
    ]


def test_an_order_that_is_shipped_too_late_is_reported(files: Callable[[str], list[Path]]) -> None:
    [file] = files("process")
    driver = TopologyTestDriver(str(file))
    hour = 3_600_000
    for at, number, what in (
        (0, "1", "ordered"),
        (0, "2", "ordered"),
        (20, "2", "shipped"),
        (30, "1", "shipped"),
        (60, "3", "ordered"),
    ):
        driver.send("shop.events", {"order": number, "what": what}, timestamp=at * hour)
    driver.run()
    assert [r.value["order"] for r in driver.read("shop.overdue")] == ["1"]


def test_two_sums_with_names_of_their_own(files: Callable[[str], list[Path]]) -> None:
    files("names")
    driver = TopologyTestDriver(import_module("shop").app)
    driver.send("shop.orders", {"user": "anna", "cents": 300, "items": 2})
    driver.send("shop.orders", {"user": "anna", "cents": 500, "items": 1})
    driver.run()
    assert [r.value for r in driver.read("shop.spent")] == [300, 800]
    assert [r.value for r in driver.read("shop.bought")] == [2, 3]


def test_annotations_choose_the_serdes(files: Callable[[str], list[Path]]) -> None:
    files("types")
    shop = import_module("shop")
    driver = TopologyTestDriver(shop.app)
    driver.send("orders", shop.Order(user="anna", cents=250), key="7")
    driver.send("orders", shop.Order(user="anna", cents=500), key="8")
    driver.run()
    read = [(r.key, r.value) for r in driver.read("spent")]
    assert read == [("anna", Decimal("2.5")), ("anna", Decimal("7.5"))]


def test_the_clock_reports_what_waits(files: Callable[[str], list[Path]]) -> None:
    [file] = files("wall-clock")
    driver = TopologyTestDriver(str(file))
    driver.send("shop.orders", {"what": "ordered"}, key="7")
    driver.run()
    driver.advance("3605s")
    notices = driver.read("shop.notices")
    assert [r.value["waiting"] for r in notices if "waiting" in r.value] == [1] * 60
    assert [r.key for r in notices if "remind" in r.value] == ["7"]


def test_the_test_of_a_topology_passes(
    files: Callable[[str], list[Path]],
) -> None:
    files("testing")
    example = import_module("test_shop")
    example.test_orders_are_summed_by_customer()
