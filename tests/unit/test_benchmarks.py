"""Every benchmark can be imported and is documented: nothing else in `make check` uses them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"


@pytest.mark.parametrize("module", sorted(BENCHMARKS.values()))
def test_a_benchmark_can_be_imported(module: str) -> None:
    assert callable(import_module(f"benchmarks.{module}").run)


def test_the_table_of_performance_names_every_benchmark() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("| name | measures | goal |")[2].partition("\n\n")[0]
    names = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(names) == sorted(BENCHMARKS)
