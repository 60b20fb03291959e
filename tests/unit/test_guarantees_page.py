"""Every test that docs/guarantees.md names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_guarantee_names_a_test_that_exists() -> None:
    page = (REPOSITORY / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", page)
    assert len(named) > 30
    missing = [f"{file}::{test}" for file, test in named if test not in defined_tests(file)]
    assert not missing


def test_every_row_of_a_table_names_a_test() -> None:
    page = (REPOSITORY / "docs" / "guarantees.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    untested = [r for r in rows if "::" not in r and not r.startswith("| failure")]
    assert not untested


def defined_tests(file: str) -> set[str]:
    path = REPOSITORY / file
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
