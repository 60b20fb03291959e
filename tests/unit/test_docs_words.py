"""What a user reads is short enough to be read; proofs, measurements and decisions are apart."""

from __future__ import annotations

from pathlib import Path

from tests.unit.test_docs_links import REPOSITORY, without_code

MOST_WORDS = 90_000
"""Words outside of code blocks, of all pages together."""

DOCS = REPOSITORY / "docs"

APART = {
    "adr",
    "architecture.md",
    "benchmarks",
    "compared.md",
    "guarantees.md",
    "invariants.md",
    "model",
    "performance.md",
}
"""Pages and folders that docs/README.md lists as proofs, measurements and decisions."""


def pages_of_users() -> list[Path]:
    return [page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in APART]


def test_what_a_user_reads_stays_within_its_words() -> None:
    words = {page: len(without_code(page).split()) for page in pages_of_users()}
    longest = sorted(words, key=lambda page: -words[page])[:5]
    found = [(str(page.relative_to(DOCS)), words[page]) for page in longest]
    assert sum(words.values()) <= MOST_WORDS, found


def test_what_is_apart_stands_in_one_section_of_the_list() -> None:
    listed = (DOCS / "README.md").read_text(encoding="utf-8")
    _, _, proofs = listed.partition("## Proofs, measurements and decisions\n")
    proofs, _, _ = proofs.partition("\n## ")
    for name in APART:
        assert f"]({name}" in proofs, name
