"""Every benchmark can at least be imported: nothing else in `make check` uses them."""

from __future__ import annotations

from importlib import import_module

import pytest

from benchmarks.__main__ import BENCHMARKS


@pytest.mark.parametrize("module", sorted(BENCHMARKS.values()))
def test_a_benchmark_can_be_imported(module: str) -> None:
    assert callable(import_module(f"benchmarks.{module}").run)
