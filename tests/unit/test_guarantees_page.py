"""Rows of docs/guarantees.md: one sentence each, and tests that exist, marked by where they run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

MOST_WORDS = 9_400
"""Of the page, without the bars of its tables."""

MOST_WORDS_OF_A_GUARANTEE = 32

HEADER = "| guarantee | tests |"

NAMED = re.compile(r"(tests/[\w/]+\.py)?::(test_\w+)( \(test-all\))?")
"""A test, in the file that is named with it or before it in the same row."""


class Citation(NamedTuple):
    """A test that a row names."""

    file: str
    test: str
    only_test_all: bool


def page() -> str:
    return (REPOSITORY / "docs" / "guarantees.md").read_text(encoding="utf-8")


def rows() -> list[str]:
    return [
        line
        for line in page().splitlines()
        if line.startswith("|") and "---" not in line and line != HEADER
    ]


def citations(row: str) -> Iterator[Citation]:
    """Yield the tests of a row; a name without a file is in the file named before it."""
    last = ""
    for file, test, mark in NAMED.findall(row):
        last = file or last
        assert last, f"{test} has no file: {row}"
        yield Citation(last, test, bool(mark))


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


def cited() -> list[Citation]:
    return [citation for row in rows() for citation in citations(row)]


def test_every_guarantee_names_a_test_that_exists() -> None:
    assert len(cited()) > 800
    missing = [
        f"{file}::{test}"
        for file, test, _ in cited()
        if not (REPOSITORY / file).exists() or test not in defined_tests(file)
    ]
    assert not missing


def test_every_row_is_a_guarantee_and_its_tests() -> None:
    for row in rows():
        cells = row.strip("| ").split(" | ")
        assert len(cells) == 2, f"expected a guarantee and its tests, under {HEADER!r}: {row}"
        guarantee, tests = cells
        assert re.fullmatch(r"[A-Z`@].*\.( \(unit\))?", guarantee), row
        assert len(guarantee.split()) <= MOST_WORDS_OF_A_GUARANTEE, row
        assert not re.sub(r",? ?" + NAMED.pattern, "", tests), row
        assert "::" in tests, row


def test_exactly_the_tests_that_only_test_all_runs_are_marked() -> None:
    wrong = [f"{file}::{test}" for file, test, mark in cited() if defined_tests(file)[test] != mark]
    assert not wrong


def test_exactly_the_rows_that_no_server_shows_are_marked() -> None:
    for row in rows():
        no_server = all(file.startswith("tests/unit/") for file, *_ in citations(row))
        assert no_server == (" (unit) |" in row), row


def test_every_table_has_a_row_that_make_test_shows_on_a_server() -> None:
    tables = re.split(r"^\| guarantee .*\n", page(), flags=re.MULTILINE)[1:]
    assert len(tables) > 20
    bare = [
        table[:80]
        for table in tables
        if not any(
            not mark and not file.startswith("tests/unit/")
            for row in table.splitlines()
            if row.startswith("|")
            for file, _, mark in citations(row)
        )
    ]
    assert not bare


@pytest.mark.parametrize("folder", ["faults", "hostile"])
def test_every_module_of_faults_shows_a_guarantee(folder: str) -> None:
    files = {str(file.relative_to(REPOSITORY)) for file in modules(folder)}
    assert len(files) > 1
    assert not files - {file for file, *_ in cited()}


def modules(folder: str) -> list[Path]:
    return list((REPOSITORY / "tests" / folder).rglob("test_*.py"))


def test_no_guarantee_stands_twice() -> None:
    stated = [row.split(" | ")[0] for row in rows()]
    assert len(stated) == len(set(stated))


def test_the_page_is_read_in_half_an_hour() -> None:
    words = [word for word in page().split() if word != "|"]
    assert len(words) <= MOST_WORDS, len(words)
