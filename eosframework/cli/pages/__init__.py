"""Generated pages of the documentation: their texts are Markdown files with places for tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import Template

from eosframework.serialization.yaml_text import read_text


def page(name: str, **rows: Iterable[Sequence[object]]) -> str:
    """Return the page `name` with the rows of its tables.

    Args:
        name: of the file, without `.md`.
        rows: of each table, by the name of its place in the file.
    """
    tables = {place: "\n".join(map(_row, cells)) for place, cells in rows.items()}
    return Template(read_text("eosframework.cli.pages", f"{name}.md")).substitute(tables)


def _row(cells: Sequence[object]) -> str:
    escaped = (str(cell).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
