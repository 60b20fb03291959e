"""The documentation site: the repository's pages, staged and built by MkDocs.

`python -m tests.support.documents.site` writes it to build/site. The pages stay plain Markdown that
a repository host shows; staging changes what MkDocs reads otherwise: links to files that are no
pages, lists that follow a line of text, and the indentation inside lists. Mermaid draws diagrams in
the reader's browser; its script is a file of the site. Without it they stay text, because the theme
would load one from elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import MkDocsException
from pymdownx.superfences import fence_code_format

from tests.house import REPOSITORY
from tests.support.documents.mermaid import mermaid_script
from tests.support.documents.npm_files import NpmFileMissing

CONFIG = REPOSITORY / "docs" / "site" / "mkdocs.yml"
BUILD = REPOSITORY / "build"

_PAGES = ("*.md", "docs/**/*.md", "examples/*/README.md")
_PICTURES = ("docs/**/*.svg", "docs/**/*.png")
_NOTEBOOKS = "docs/start/*.ipynb"
_DECISIONS = Path("docs/adr")
_LIST_ITEM = re.compile(r"( *)([-*]|\d+\.) ")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_SCRIPT = Path("assets/mermaid.min.js")
"""The place of Mermaid in the site."""

_LIST_INDENT = 4
"""MkDocs wants the content of a list item indented so far."""


def build_site(source: Path, target: Path) -> None:
    """Build the site from staged pages.

    Args:
        source: directory of the staged pages.
        target: directory of the site.

    Raises:
        MkDocsException: a link has no target, or a page is missing in the navigation.
    """
    config = load_config(str(CONFIG), docs_dir=str(source), site_dir=str(target), strict=True)
    decisions = {"Decisions": [str(_DECISIONS / "README.md"), *_decisions()]}
    config.nav = [*(config.nav or []), decisions]
    if (source / _SCRIPT).is_file():
        config.extra_javascript.append(str(_SCRIPT))
        diagrams = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [diagrams]}
    config.plugins.on_startup(command="build", dirty=False)
    build(config)


def stage(folder: Path) -> None:
    """Copy every page and picture to `folder`, at the same place as in the repository."""
    pages = [page for pattern in _PAGES for page in sorted(REPOSITORY.glob(pattern))]
    notebooks = {
        notebook.relative_to(REPOSITORY).with_suffix(".md"): as_page(notebook)
        for notebook in REPOSITORY.glob(_NOTEBOOKS)
    }
    names = {page.relative_to(REPOSITORY) for page in pages}
    names |= {_DECISIONS / "README.md", *notebooks}
    for name, text in notebooks.items():
        _write(folder / name, staged(text, name, names))
    for page in pages:
        name = page.relative_to(REPOSITORY)
        _write(folder / name, staged(page.read_text(encoding="utf-8"), name, names))
    _write(folder / _DECISIONS / "README.md", _index_of_decisions())
    for pattern in _PICTURES:
        for picture in REPOSITORY.glob(pattern):
            copy = folder / picture.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, copy)


def as_page(notebook: Path) -> str:
    """Return a notebook as Markdown: its code, and no outputs."""
    found = json.loads(notebook.read_text(encoding="utf-8"))
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in found["cells"]]
    return "\n\n".join(
        text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells
    )


def stage_mermaid(folder: Path) -> None:
    """Copy Mermaid to staged pages, so that the site draws its diagrams.

    Raises:
        NpmFileMissing: it cannot be had.
    """
    (folder / _SCRIPT.parent).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(mermaid_script(), folder / _SCRIPT)


def staged(text: str, page: Path, pages: set[Path]) -> str:
    """Return a page as MkDocs is to read it.

    Args:
        text: the page.
        page: its path in the repository.
        pages: the paths of all pages of the site.
    """
    return "\n".join(_lines(text, page, pages)) + "\n"


def _lines(text: str, page: Path, pages: set[Path]) -> Iterator[str]:
    fence, shift, is_list, former = "", 0, False, ""
    for line in text.splitlines():
        if fence:
            yield " " * shift + line if line else line
            fence = "" if line.strip() == fence else fence
            former = line
            continue
        indent = len(line) - len(line.lstrip())
        follows_text = bool(former.strip()) and not _begins_block(former)
        follows_code = former.lstrip().startswith("```")
        if _begins_block(line) and (follows_code or (follows_text and not is_list)):
            yield ""
        if line and not indent and not _LIST_ITEM.match(line):
            is_list = is_list and follows_text and not _begins_block(line)
        is_list = is_list or bool(_LIST_ITEM.match(line))
        shift = _LIST_INDENT * round(indent / 2.5) - indent if is_list else 0
        if opened := re.match(r" *(`{3,})", line):
            fence = opened[1]
        yield " " * shift + (line if fence else _LINK.sub(_linked(page, pages), line))
        former = line


def _begins_block(line: str) -> bool:
    """Return whether a line is an item of a list, a row of a table, a heading or a quotation."""
    return bool(_LIST_ITEM.match(line)) or line.lstrip().startswith(("|", "#", ">"))


def _linked(page: Path, pages: set[Path]) -> Callable[[re.Match[str]], str]:
    """Return a function that replaces the links of a page to what the site does not have."""

    def replaced(link: re.Match[str]) -> str:
        text, target, anchor = link.groups(default="")
        path = Path(os.path.normpath(page.parent / target))
        if path.suffix == ".ipynb" and path.with_suffix(".md") in pages:
            return f"[{text}]({target.removesuffix('.ipynb')}.md{anchor})"
        if path in pages or path.suffix in (".svg", ".png"):
            return link[0]
        if path / "README.md" in pages:
            return f"[{text}]({target.rstrip('/')}/README.md{anchor})"
        return text if f"{path}" in text else f"{text} (`{path}`)"

    return replaced


def _index_of_decisions() -> str:
    titles = {page: (REPOSITORY / page).read_text(encoding="utf-8") for page in _decisions()}
    lines = [
        f"- [{text.partition(chr(10))[0].removeprefix('# ')}]({Path(page).name})"
        for page, text in titles.items()
    ]
    return "\n".join(["# Decisions", "", *lines, ""])


def _decisions() -> list[str]:
    return [
        str(page.relative_to(REPOSITORY)) for page in sorted((REPOSITORY / _DECISIONS).glob("*.md"))
    ]


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def main() -> None:
    """Build the site; print where it is, or what is wrong."""
    pages = BUILD / "site-pages"
    shutil.rmtree(pages, ignore_errors=True)
    stage(pages)
    try:
        stage_mermaid(pages)
    except NpmFileMissing as error:
        print(f"diagrams stay text: {error}", file=sys.stderr)
    try:
        build_site(pages, BUILD / "site")
    except MkDocsException as error:
        sys.exit(f"error: the site was not built: {error}")
    print(f"the site is in {BUILD / 'site'}; show it with: python -m http.server -d build/site")


if __name__ == "__main__":
    main()
