"""The examples of the page about batches run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from eosframework.testing import TopologyTestDriver

PAGE = Path(__file__).resolve().parents[5] / "docs" / "howto" / "batches.md"


@pytest.fixture
def blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    found = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "trips.py").write_text(found[0][1])
    monkeypatch.syspath_prepend(tmp_path)
    yield found
    del sys.modules["trips"]


def test_both_forms_of_the_example_do_the_same(blocks: list[tuple[str, str]]) -> None:
    trips: Any = import_module("trips")
    file = Path(trips.__file__).with_name("trips.yaml")
    file.write_text(blocks[1][1])
    for app in (trips.app, str(file)):
        driver = TopologyTestDriver(app)
        driver.send("trips.raw", {"car": "a", "km": 10, "minutes": 5, "more": 1}, key="a")
        driver.send("trips.raw", {"car": "b", "km": 0, "minutes": 5}, key="b")
        driver.run()
        assert [(r.key, r.value) for r in driver.read("trips.speeds")] == [
            ("a", {"car": "a", "kmh": 120.0})
        ]


def test_the_test_of_the_example_passes(blocks: list[tuple[str, str]]) -> None:
    names: dict[str, Any] = dict(vars(import_module("trips")))
    exec(blocks[2][1], names)
    names["test_speeds_do_not_depend_on_how_records_are_cut"]()
