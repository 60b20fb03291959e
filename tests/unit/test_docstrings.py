"""Docstrings open with a noun phrase or an imperative, and no new one with another clause."""

from __future__ import annotations

from collections import Counter

from tests.house import (
    FORBIDDEN_OPENINGS,
    PRODUCT,
    REPOSITORY,
    Docstring,
    Module,
    forbidden_docstrings,
    read_package,
    top_level_entries,
)

OFFENDERS = {
    "application": 18,
    "backfill": 50,
    "cli": 5,
    "config": 18,
    "demo": 38,
    "embedded": 16,
    "kafka": 50,
    "monitoring": 14,
    "operations": 39,
    "operators": 22,
    "outbox": 21,
    "postgres": 25,
    "process": 6,
    "processing": 74,
    "records": 1,
    "runtime": 11,
    "serialization": 3,
    "state": 12,
    "tables": 10,
    "testing": 9,
    "topology": 69,
    "txnid": 6,
}
"""How many docstrings of each top-level entry of `eosframework/` open with one of
`FORBIDDEN_OPENINGS`. Numbers may only shrink: lower them when docstrings are rewritten, and remove
an entry that has none. What is not named here has none."""


def entry_of(module: Module) -> str:
    """The top-level entry that a module belongs to; "" for the package itself."""
    return ".".join(module.name.split(".")[1:2])


def shown(module: Module, docstring: Docstring) -> str:
    place = f"{module.file.relative_to(REPOSITORY)}:{docstring.line}"
    return f"{place}: {docstring.text.splitlines()[0]}"


def test_no_more_docstrings_open_with_a_clause() -> None:
    found = forbidden_docstrings(read_package(PRODUCT))
    counts = Counter(entry_of(module) for module, _ in found)
    grown = {entry for entry, count in counts.items() if count > OFFENDERS.get(entry, 0)}
    places = [shown(module, docstring) for module, docstring in found if entry_of(module) in grown]
    numbers = ", ".join(f"{e} {OFFENDERS.get(e, 0)} -> {counts[e]}" for e in sorted(grown))
    assert not grown, (
        f"docstrings that open with one of {', '.join(FORBIDDEN_OPENINGS)} grew ({numbers}); "
        f"begin the new ones with a noun phrase or an imperative:\n" + "\n".join(places)
    )


def test_only_entries_that_exist_are_named() -> None:
    assert set(OFFENDERS) <= {"", *top_level_entries(PRODUCT)}
