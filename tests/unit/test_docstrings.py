"""Docstrings open with a noun phrase or an imperative."""

from __future__ import annotations

from tests.house import (
    FORBIDDEN_OPENINGS,
    PRODUCT,
    REPOSITORY,
    Docstring,
    Module,
    forbidden_docstrings,
    read_package,
)


def shown(module: Module, docstring: Docstring) -> str:
    place = f"{module.file.relative_to(REPOSITORY)}:{docstring.line}"
    return f"{place}: {docstring.text.splitlines()[0]}"


def test_no_docstring_opens_with_a_clause() -> None:
    found = [shown(*place) for place in forbidden_docstrings(read_package(PRODUCT))]
    expected = f"no docstring opens with {', '.join(FORBIDDEN_OPENINGS)}"
    assert not found, f"{expected}; begin these with a noun phrase or an imperative:\n" + "\n".join(
        found
    )
