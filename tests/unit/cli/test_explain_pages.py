"""The documentation is in the wheel, and messages name its pages by a command that prints them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from eosframework.cli import main
from eosframework.cli.explain_pages import SECTIONS, find_page, pages
from eosframework.errors import ConfigurationError
from tests.support.processes.programs import REPOSITORY

PACKAGE = REPOSITORY / "eosframework"
FILE_OF_DOCS = re.compile(r"docs/[a-z/-]+\.md")
NAMED_PAGE = re.compile(r"explain page ([a-z][a-z/-]+)")


def messages() -> Iterator[tuple[Path, str]]:
    """Yield the texts of the package that a user may see: strings, and values of tables."""
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        statements = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in statements:
                yield file, str(node.value)
    for file in PACKAGE.rglob("*.yaml"):
        lines = file.read_text(encoding="utf-8").splitlines()
        yield file, "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def test_no_message_names_a_file_of_the_repository() -> None:
    generated = {"alerts.py"}  # a comment of the file that `explain alerts` prints for a repository
    found = [
        (file.name, named[0])
        for file, text in messages()
        if (named := FILE_OF_DOCS.search(text)) and file.name not in generated
    ]
    assert found == []


def test_every_page_that_a_message_names_exists() -> None:
    named = {name for _, text in messages() for name in NAMED_PAGE.findall(text)}
    assert "growing-partitions" in named
    for name in named:
        assert find_page(name).text


def test_pages_have_one_name_each_and_a_title() -> None:
    names = [page.name for page in pages()]
    assert len(names) == len(set(names))
    assert {page.section for page in pages()} == set(SECTIONS)
    assert all(page.title for page in pages())


def test_a_page_is_printed_as_it_is_and_a_wrong_name_finds_the_closest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'outbox'"):
        find_page("outbx")
    with pytest.raises(SystemExit):
        main(["explain", "page", "process"])
    text = (REPOSITORY / "docs" / "howto" / "process.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out.endswith(text)
