"""`lint --fix` writes names into Python and YAML, and says what it cannot write."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from eosframework.topology.lint.lint_pass import lint, lint_strictly, write_fixes
from eosframework.topology.loader import read_app
from eosframework.topology.resolve.resolve import resolve

PROGRAM = """\
from eosframework import Topology


def user(record):
    return record.key


def cents(order):
    return 1


def items(order):
    return 2


app = Topology("shop")
orders = app.stream("orders", key=str, value=dict)
"""
NUMBERS = itertools.count()


def fixed(directory: Path, text: str, *, strict: bool = False, ends: str = "py") -> tuple[str, str]:
    """Return a file after its fixes, and what was left to the user."""
    file = directory / f"shop_{next(NUMBERS)}.{ends}"
    file.write_text(text)
    found = (lint_strictly if strict else lint)(read_app(str(file)))
    left = write_fixes(found).left
    # A module is imported once under its name.
    again = directory / f"shop_{next(NUMBERS)}.{ends}"
    again.write_text(file.read_text())
    if not left:
        names = ("ambiguous-name", "derived-name")
        assert not [f for f in lint_strictly(read_app(str(again))) if strict and f.rule in names]
        resolve(read_app(str(again)))
    return file.read_text(), "; ".join(reason for _, reason in left)


def test_both_lines_of_a_program_get_names(tmp_path: Path) -> None:
    lines = (
        'orders.group_by(user).sum(cents).to("a", value="json")\n'
        'orders.group_by(user).sum(items).to("b", value="json")\n'
    )
    text, left = fixed(tmp_path, PROGRAM + lines)
    assert left == ""
    assert text == PROGRAM + (
        'orders.group_by(user, name="orders.cents").sum(cents).to("a", value="json")\n'
        'orders.group_by(user, name="orders.items").sum(items).to("b", value="json")\n'
    )


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("by.count()", 'by.count(store="orders.count")'),
        ("by.sum(cents, emit='each',)", "by.sum(cents, emit='each', store=\"orders.sum\")"),
        (
            "by.sum(\n    cents,\n)",
            'by.sum(\n    cents,\n    store="orders.sum",\n)',
        ),
        (
            "by.sum(\n    cents\n)",
            'by.sum(\n    cents,\n    store="orders.sum",\n)',
        ),
    ],
)
def test_each_form_of_a_call_takes_a_name(tmp_path: Path, call: str, expected: str) -> None:
    lines = (
        f'by = orders.group_by(user, name="orders")\nx = {call}\nx.to("out", value="json")  # é\n'
    )
    text, left = fixed(tmp_path, PROGRAM + lines, strict=True)
    assert (left, text) == ("", PROGRAM + lines.replace(call, expected))


def test_a_call_in_a_loop_is_left_to_the_user(tmp_path: Path) -> None:
    lines = (
        'by = orders.group_by(user, name="by")\n'
        'for f in (cents, items):\n    by.sum(f).to(f"{f.__name__}", value="json")\n'
    )
    text, left = fixed(tmp_path, PROGRAM + lines)
    assert text == PROGRAM + lines
    assert "declares several steps" in left


YAML = """\
application: shop
sources:
  orders: {topic: orders, key: string, value: json}
streams:
  totals:
    from: orders
    steps:
      - group_by: "tests.support.applications.functions:tens"
      - sum: "tests.support.applications.functions:double"  # a comment
      - sum: {of: "tests.support.applications.functions:triple"}
      - sum:
          of: "tests.support.applications.functions:triple"
      - count: {}
    to: {topic: out, value: json}
"""


def test_steps_of_a_file_get_names_in_each_form(tmp_path: Path) -> None:
    text, left = fixed(tmp_path, YAML, ends="yaml")
    assert left == ""
    functions = "tests.support.applications.functions"
    assert f'- sum: {{of: "{functions}:double", store: totals.sum.a}}  # a comment' in text
    assert f'- sum: {{store: totals.sum.b, of: "{functions}:triple"}}' in text
    assert f'- sum:\n          store: totals.sum.c\n          of: "{functions}:triple"' in text
    assert "- count: {}" in text

    text, left = fixed(tmp_path, text, strict=True, ends="yaml")
    assert left == ""
    assert f'- group_by: {{by: "{functions}:tens", name: totals}}' in text
    assert "- count: {store: totals.count}" in text
