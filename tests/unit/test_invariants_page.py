"""What docs/invariants.md names exists: code, tests, rules that a model can leave out."""

from __future__ import annotations

import ast
import re

from tests.unit.test_guarantees_page import REPOSITORY, citations, defined_tests

PAGE = (REPOSITORY / "docs" / "invariants.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| [AI]\d+ \|", line)]
CODE = re.compile(r"`(eosframework/[\w/]+\.py)::(\w+)`")
MODEL = re.compile(r"(docs/model/\w+\.pml), ((?:`WITHOUT_\w+`(?:, )?)+)")


def invariants() -> list[str]:
    return [row for row in ROWS if row.startswith("| I")]


def test_every_invariant_has_its_code_and_the_test_that_kills_it() -> None:
    assert len(invariants()) > 10
    for row in invariants():
        assert CODE.search(row), row
        assert list(citations(row)), row


def test_the_code_exists() -> None:
    for file, name in CODE.findall(PAGE):
        tree = ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))
        defined = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
        assert name in defined, f"{file}::{name}"


def test_the_tests_exist_and_make_test_runs_them() -> None:
    named = [citation for row in ROWS for citation in citations(row)]
    for file, name, _ in named:
        assert defined_tests(file).get(name) is False, f"{file}::{name}"


def test_the_rules_that_models_leave_out_exist() -> None:
    named = [
        (file, rule)
        for file, rules in MODEL.findall(PAGE)
        for rule in re.findall(r"WITHOUT_\w+", rules)
    ]
    assert len(named) >= len(re.findall("WITHOUT_", PAGE)) > 15
    for file, rule in named:
        assert rule in (REPOSITORY / file).read_text(encoding="utf-8"), f"{file}: {rule}"


def test_every_statement_has_a_number_of_its_own_and_rests_on_ones_that_exist() -> None:
    numbers = [row.split("|")[1].strip() for row in ROWS]
    assert len(numbers) == len(set(numbers))
    for row in invariants():
        rests_on = re.findall(r"\b[AI]\d+\b", row.rsplit("|", 2)[1])
        assert set(rests_on) <= set(numbers), row
