"""A how-to page stays short: what no user needs for the task has a page of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_docs_links import REPOSITORY, without_code

MOST_WORDS = 1200
"""Words outside of code blocks: an example is copied and run, not read."""

MOST_WORDS_BEFORE_AN_EXAMPLE = 80

BEGINS_WITH_A_MESSAGE = {"growing-partitions"}
"""Pages that a reader looks for because of a message: they begin with it."""

HOWTOS = sorted((REPOSITORY / "docs" / "howto").glob("*.md"))


@pytest.mark.parametrize("page", HOWTOS, ids=lambda page: page.stem)
def test_a_howto_is_read_in_a_few_minutes(page: Path) -> None:
    words = len(without_code(page).split())
    assert words <= MOST_WORDS, (
        f"{words} words outside of code blocks, expected at most {MOST_WORDS}: move internals to "
        f"docs/concepts or docs/guarantees.md, and tables to docs/reference, and link them"
    )


@pytest.mark.parametrize("page", HOWTOS, ids=lambda page: page.stem)
def test_a_howto_begins_with_an_example(page: Path) -> None:
    before, fence, _ = page.read_text(encoding="utf-8").partition("```")
    assert fence
    if page.stem not in BEGINS_WITH_A_MESSAGE:
        assert len(before.split()) <= MOST_WORDS_BEFORE_AN_EXAMPLE
