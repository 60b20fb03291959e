"""Modules side by side (tests/conftest.py), and the end of a process that runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_process_that_dies_fails_one_test_and_all_others_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first module is over, and of its second one a single test is left."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    pytester.makeconftest("from tests.conftest import pytest_xdist_make_scheduler")
    pytester.makepyfile(
        test_first="def test_one(): pass\ndef test_two(): pass",
        test_second="import os\ndef test_that_dies(): os._exit(9)\ndef test_left(): pass",
    )
    result = pytester.runpytest_subprocess(
        "-n", "1", "--dist", "loadscope", "--no-loadscope-reorder", timeout=100
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines("*crashed while running 'test_second.py::test_that_dies'*")
