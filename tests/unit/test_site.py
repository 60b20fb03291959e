"""The documentation site builds, every link finds its place, and no page loads from elsewhere."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from mkdocs.exceptions import MkDocsException

from tests.support.documents.site import build_site, stage, staged

PAGES = {Path("README.md"), Path("docs/a.md"), Path("examples/flights/README.md")}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The staged pages."""
    folder = tmp_path_factory.mktemp("pages")
    stage(folder)
    return folder


@pytest.fixture(scope="module")
def site(pages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site."""
    folder = tmp_path_factory.mktemp("site")
    build_site(pages, folder)
    return folder


class Loads(HTMLParser):
    """Collects the addresses that a browser loads with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        wanted = ["src", "srcset", "data", *(["href"] if tag == "link" else [])]
        self.addresses += [value for name in wanted if (value := given.get(name))]


def is_outside(address: str) -> bool:
    return bool(re.match(r"\s*(\w+:)?//", address))


def loaded(site: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file of the site with an address that it loads."""
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        yield from ((page, address) for address in loads.addresses)
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        for address in re.findall(r"(?:url\(|@import\s+)['\"]?([^'\")]+)", text):
            yield sheet, address


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    found = list(loaded(site))
    assert len(found) > 100
    assert [(page, address) for page, address in found if is_outside(address)] == []


def test_no_page_has_a_diagram_whose_script_would_be_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert [page for page in pages if 'class="mermaid"' in page.read_text("utf-8")] == []


def test_an_address_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<script src="https://a.org/x.js"></script><a href="//b">')
    (tmp_path / "a.css").write_text("@import '//c.org/x.css'; body {background: url(x.png)}")
    outside = [address for _, address in loaded(tmp_path) if is_outside(address)]
    assert outside == ["https://a.org/x.js", "//c.org/x.css"]


def test_every_page_of_the_documentation_can_be_searched(site: Path, pages: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    names = [page.relative_to(pages).parent / page.stem for page in pages.rglob("*.md")]
    places = [str(name).removesuffix("README").rstrip("/") for name in names]
    assert [place for place in places if f'"{place}/"' not in index and place] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "text",
    ["[gone](gone.md)", "[gone](../README.md#gone)"],
    ids=["page", "heading"],
)
def test_a_link_without_a_target_is_refused(pages: Path, tmp_path: Path, text: str) -> None:
    copy = tmp_path / "pages"
    shutil.copytree(pages, copy)
    with (copy / "docs" / "scale.md").open("a") as page:
        page.write(f"\n{text}\n")
    with pytest.raises(MkDocsException, match="strict"):
        build_site(copy, tmp_path / "site")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](../README.md#b)", "[a](../README.md#b)"),
        ("[a](../examples/flights)", "[a](../examples/flights/README.md)"),
        ("[a](../docker/compose.yaml)", "a (`docker/compose.yaml`)"),
        ("[docker/a.yaml](../docker/a.yaml)", "docker/a.yaml"),
        ("[a](https://a.org) [b](#c)", "[a](https://a.org) [b](#c)"),
    ],
)
def test_links_to_files_that_are_no_pages_become_text(text: str, expected: str) -> None:
    assert staged(text, Path("docs/a.md"), PAGES) == f"{expected}\n"


def test_a_list_after_text_begins_a_block_and_its_content_is_indented() -> None:
    page = "Text:\n- one\n  more\n- two\n  ```\n  code\n    deep\n  ```\nText\n\n| a |\n"
    wanted = (
        "Text:\n\n- one\n    more\n- two\n    ```\n    code\n      deep\n    ```\nText\n\n| a |\n"
    )
    assert staged(page, Path("a.md"), set()) == wanted


def test_an_item_after_the_code_of_another_one_begins_a_block() -> None:
    page = "- one\n\n  ```\n  code\n  ```\n- two\n"
    wanted = "- one\n\n    ```\n    code\n    ```\n\n- two\n"
    assert staged(page, Path("a.md"), set()) == wanted
