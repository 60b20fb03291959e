"""The generated reference pages are what the code says."""

from __future__ import annotations

import pytest

from eosframework import cli
from eosframework.topology.loader import topology_schema
from tests.support.documents.reference_pages import FOLDER, PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_made_of_what_the_code_says(page: str) -> None:
    expected = "run: python -m tests.support.documents.reference_pages"
    assert (FOLDER / page).read_text(encoding="utf-8") == PAGES[page](), expected


def test_the_page_of_commands_has_each_of_them() -> None:
    text = PAGES["cli.md"]()
    assert [name for name in cli.COMMANDS if f"\n## {name}\n" not in text] == []


def test_the_page_of_keys_has_each_of_them() -> None:
    text, schema = PAGES["yaml.md"](), topology_schema()
    maps = [schema, *schema["$defs"].values()]
    keys = [key for each in maps for key in each.get("properties", {})]
    assert keys
    assert [key for key in keys if f"\n| `{key}` | " not in text] == []
