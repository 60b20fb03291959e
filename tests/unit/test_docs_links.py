"""Links from one page to another find a file, and the heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "examples").rglob("*.md"),
    ]
)


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The anchors of headings as renderers of Markdown make them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    plain = (re.sub(r"[^\w -]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_of_a_page_finds_its_place(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), target


PACKAGE = REPOSITORY / "eosframework"
MODULE = re.compile(r"`((?:[a-z]\w*/)+[a-z]\w*)(?:\.py)?(?:\.[a-zA-Z_]\w*)*`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    packages = {folder.name for folder in PACKAGE.iterdir() if folder.is_dir()} | {"processing"}
    for name in MODULE.findall(without_code(page)):
        if name.split("/")[0] in packages:
            place = PACKAGE / name
            assert place.is_dir() or list(place.parent.glob(f"{place.name}.*")), name
