"""The topologies of docs/coming-from load and do what the pages say."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eosframework import Record
from eosframework.testing import TopologyTestDriver

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "coming-from"
PAGES = sorted(page.stem for page in FOLDER.glob("*.md"))


def blocks(page: str) -> list[str]:
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], TopologyTestDriver]]:
    """Load the one block of a page that begins with `# NAME.py`."""
    names: list[str] = []

    def load(page: str) -> TopologyTestDriver:
        [(name, block)] = [
            (found[1], block)
            for block in blocks(page)
            if (found := re.match(r"# (\w+)\.py", block))
        ]
        file = tmp_path / f"{name}.py"
        file.write_text(block)
        monkeypatch.delitem(sys.modules, name, raising=False)
        names.append(name)
        return TopologyTestDriver(str(file))

    monkeypatch.syspath_prepend(tmp_path)
    yield load
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_python_is_python(page: str) -> None:
    found = blocks(page)
    assert found
    for block in found:
        ast.parse(block)


def test_every_page_has_a_test_of_its_topology() -> None:
    tested = re.findall(r'driver\("([a-z-]+)"\)', Path(__file__).read_text(encoding="utf-8"))
    assert sorted(tested) == PAGES


def test_words_are_counted(driver: Callable[[str], TopologyTestDriver]) -> None:
    app = driver("kafka-streams")
    app.send("lines", "to be or not to be")
    app.run()
    counts = {record.key: record.value for record in app.read("counts")}
    assert counts == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_clicks_are_counted_for_each_page_and_hour(
    driver: Callable[[str], TopologyTestDriver],
) -> None:
    app = driver("quix-streams")
    for minute in (0, 30, 70, 200):
        app.send("clicks", {"page": "/"}, timestamp=minute * 60_000)
    app.run()
    assert [(r.key, r.value.value) for r in app.read("clicks.hourly")] == [("/", 2), ("/", 1)]


def test_cents_are_added_up_for_each_customer(driver: Callable[[str], TopologyTestDriver]) -> None:
    app = driver("faust")
    for cents in (5, 7):
        app.send("orders", b'{"customer": "anna", "cents": %d}' % cents)
    app.run()
    assert [(r.key, r.value) for r in app.read("totals")] == [("anna", 5), ("anna", 12)]


def test_clicks_are_counted_by_their_own_time(driver: Callable[[str], TopologyTestDriver]) -> None:
    app = driver("spark")
    for time in ("10:05", "10:40", "11:30", "12:10"):
        app.send("clicks", {"page": "/", "at": f"2026-03-01T{time}:00+00:00"})
    app.run()
    assert [(r.key, r.value.value) for r in app.read("clicks.hourly")] == [("/", 2), ("/", 1)]


def test_a_captured_row_becomes_a_row_of_the_table(
    driver: Callable[[str], TopologyTestDriver],
) -> None:
    driver("debezium-and-connect")
    landing: Any = sys.modules["landing"]
    row = landing.row(Record("o1", {"after": {"cents": 7}}, timestamp=0))
    assert landing.Order.model_validate(row) == landing.Order(id="o1", cents=7)
