"""`eosframework explain page`: pages of the documentation, which an installed wheel has too."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from eosframework.errors import ConfigurationError

_PACKAGE = Path(__file__).parent.parent
_PLACES = (_PACKAGE / "documentation", _PACKAGE.parent / "docs")
"""The pages in a wheel, and in the repository."""

SECTIONS = ("start", "howto", "concepts", "reference", "coming-from")
"""The folders with pages for users, in the order of the list."""


@dataclass(frozen=True, slots=True)
class DocumentationPage:
    """A page for users, by the name of its file."""

    section: str
    name: str
    file: Path

    @property
    def title(self) -> str:
        """The first line of the page."""
        return self.text.partition("\n")[0].lstrip("# ")

    @property
    def text(self) -> str:
        """The page, in Markdown."""
        return self.file.read_text(encoding="utf-8")


def pages() -> list[DocumentationPage]:
    """Return all pages, section by section.

    Of several pages with one name the first goes by it, and the others by `SECTION/NAME`.
    """
    root = next(place for place in _PLACES if place.is_dir())
    found: dict[str, DocumentationPage] = {}
    for section in SECTIONS:
        for file in sorted(root.glob(f"{section}/*.md")):
            name = f"{section}/{file.stem}" if file.stem in found else file.stem
            found[name] = DocumentationPage(section, name, file)
    return list(found.values())


def find_page(name: str) -> DocumentationPage:
    """Return a page.

    Raises:
        ConfigurationError: there is no page of this name.
    """
    from eosframework.serialization import references

    known = {each.name: each for each in pages()}
    if name not in known:
        raise ConfigurationError(
            f"there is no page {name!r}{references.closest(name, known)}; `eosframework explain "
            f"page` lists them"
        )
    return known[name]


def print_page(name: str) -> None:
    """Print a page: formatted on a terminal, as Markdown elsewhere."""
    text = find_page(name).text
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    from rich.markdown import Markdown

    from eosframework.process.progress import TerminalConsole

    TerminalConsole().print(Markdown(text))


def print_list() -> None:
    """Print the names and titles of all pages."""
    width = max(len(page.name) for page in pages())
    for section in SECTIONS:
        typer.echo(f"{section}:")
        for page in pages():
            if page.section == section:
                typer.echo(f"  {page.name:<{width}}  {page.title}")
