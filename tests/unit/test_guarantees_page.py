"""The tests that docs/guarantees.md names: they exist, and `test-all` marks those it alone runs."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

NAMED = re.compile(r"(tests/[\w/]+\.py)::(\w+)( \(test-all\))?")


def page() -> str:
    return (REPOSITORY / "docs" / "guarantees.md").read_text(encoding="utf-8")


def rows() -> list[str]:
    return [line for line in page().splitlines() if line.startswith("| ") and "---" not in line]


@cache
def defined_tests(file: str) -> dict[str, bool]:
    """The tests of a module; True where only `make test-all` runs any case of it."""
    tree = ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))
    whole = any(
        isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "pytestmark"
        and "mark.exhaustive" in ast.unparse(node.value)
        for node in tree.body
    )
    return {
        node.name: whole or "pytest.mark.exhaustive" in map(ast.unparse, node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def test_every_guarantee_names_a_test_that_exists() -> None:
    named = NAMED.findall(page())
    assert len(named) > 30
    missing = [f"{file}::{test}" for file, test, _ in named if test not in defined_tests(file)]
    assert not missing


def test_every_row_of_a_table_names_a_test() -> None:
    untested = [row for row in rows() if "::" not in row and not row.startswith("| failure")]
    assert not untested


def test_exactly_the_tests_that_only_test_all_runs_are_marked() -> None:
    wrong = [
        f"{file}::{test}"
        for file, test, mark in NAMED.findall(page())
        if defined_tests(file)[test] != bool(mark)
    ]
    assert not wrong


def test_every_table_has_a_row_that_make_test_shows() -> None:
    tables = re.split(r"^\| failure .*\n", page(), flags=re.MULTILINE)[1:]
    assert len(tables) > 10
    bare = [
        table[:80] for table in tables if not any(not mark for *_, mark in NAMED.findall(table))
    ]
    assert not bare
