"""docs/reference/api.md is what the docstrings of the public API say."""

from __future__ import annotations

from tests.support.documents.api_reference import PACKAGES, PAGE, markdown, public_names
from tests.unit.public.test_public_names import PUBLIC


def test_the_page_is_made_of_the_docstrings() -> None:
    expected = "run: python -m tests.support.documents.api_reference"
    assert PAGE.read_text(encoding="utf-8") == markdown(), expected


def test_the_page_has_every_public_name() -> None:
    listed = {".".join(filter(None, ["eosframework", p])): set(public_names(p)) for p in PACKAGES}
    assert listed == PUBLIC
