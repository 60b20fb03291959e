"""Words of a private language become fewer, in docstrings, comments, help and pages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.language import ALLOWED, PRODUCT, REPOSITORY, WORDS, all_files, private_words

OFFENDERS = {
    "docs/benchmarks/results.md": 2,
    "docs/howto/blocked-reader.md": 2,
    "operations": 2,
}
"""How many of `tests.language.WORDS` stand in each top-level entry of `eosframework/` and in each
page. Numbers may only shrink: `python -m tests.language` prints the table, and with `--places` each
word with what to write instead. What is not named here has none."""


def test_no_private_word_is_added() -> None:
    found = private_words(all_files())
    counts = Counter(place.entry for place in found)
    grown = {entry for entry, count in counts.items() if count > OFFENDERS.get(entry, 0)}
    places = [
        f"{place.file.relative_to(REPOSITORY)}:{place.line}: {place.word!r}: write {place.instead}"
        for place in found
        if place.entry in grown
    ]
    numbers = ", ".join(f"{e} {OFFENDERS.get(e, 0)} -> {counts[e]}" for e in sorted(grown))
    assert not grown, f"words that the glossary replaces ({numbers}):\n" + "\n".join(places)


def test_only_entries_that_exist_are_named() -> None:
    homes = [PRODUCT, REPOSITORY]
    missing = [
        entry
        for entry in OFFENDERS
        if not any((home / f"{entry}{end}").exists() for home in homes for end in ("", ".py"))
    ]
    assert not missing


TEXT = '''\
"""Go on behind it."""

NAME = "behind"  # beside the name
"""Told by `behind`, and [there](behind.md)."""

URL = """
# behind
"""

option(help="Who mends" "it", other="mend")
'''


def words(path: Path, text: str) -> list[tuple[int, str]]:
    path.write_text(text)
    return [(place.line, place.word) for place in private_words([path])]


def test_docstrings_comments_and_help_of_modules_are_read(tmp_path: Path) -> None:
    found = words(tmp_path / "m.py", TEXT)
    assert found == [(1, "Go on"), (1, "behind"), (3, "beside"), (4, "Told")]
    assert words(tmp_path / "m.py", 'f(help="Who mends " "it")') == [(1, "mends")]
    assert words(tmp_path / "m.py", 'f(help=f"{x} mends it", a=f"mends {x}")') == [(1, "mends")]


def test_all_text_of_pages_is_read_but_literal_names(tmp_path: Path) -> None:
    text = "# Mend\n`behind` [letters](letters.md)\n```\nx  # it goes\non\n```\n"
    assert words(tmp_path / "page.md", text) == [(1, "Mend"), (2, "letters"), (4, "goes\non")]


@pytest.mark.parametrize(
    "text",
    ["A dead-letter topic", "lags  behind", "behind a reverse proxy", "dead\nletters", "mender"],
)
def test_words_of_the_field_are_allowed(tmp_path: Path, text: str) -> None:
    assert words(tmp_path / "page.md", text) == []


def test_each_word_has_another_and_each_exception_a_reason(tmp_path: Path) -> None:
    assert all(WORDS.values())
    assert all(ALLOWED.values())
    [place] = private_words([page]) if (page := _write(tmp_path, "was away")) else []
    assert place.instead == "unavailable"


def _write(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page
