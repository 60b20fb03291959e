"""The report: progress during the run, tables at the end, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import rich.table
from rich.console import Console

from benchmarks.machine import describe_contestants, describe_machine, machine_line

WIDTH = 118
"""Tables have as many columns, also where the output is not a terminal."""


@dataclass(frozen=True)
class Table:
    """Rows of text under headings."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def contestants(self) -> dict[str, str]:
        """The versions of the programs of others that it names, by their names."""
        cells = (cell for row in self.rows for cell in row)
        return describe_contestants("\n".join((self.title, *self.columns, *cells)))


@dataclass
class Report:
    """Collects the results of one run of the benchmarks.

    Args:
        results: the data of each benchmark.
        tables: what was printed of each.
    """

    results: dict[str, Any] = field(default_factory=dict[str, Any])
    tables: dict[str, Table] = field(default_factory=dict[str, Table])
    _console: Console = field(default_factory=lambda: Console(width=WIDTH))

    def progress(self, line: str) -> None:
        """Say what was just done."""
        self._console.print(line, style="dim", highlight=False)

    def add(self, name: str, table: Table, data: dict[str, Any]) -> None:
        """Keep the data of a benchmark and print its table."""
        self.results[name] = data
        self.tables[name] = table
        printed = rich.table.Table(
            title=table.title, caption=machine_line(table.contestants), title_justify="left"
        )
        for number, column in enumerate(table.columns):
            printed.add_column(column, justify="left" if number == 0 else "right")
        for row in table.rows:
            printed.add_row(*row)
        self._console.print(printed)

    def save(self, file: Path) -> None:
        """Write machine, versions and all data as one JSON object."""
        content = {"machine": describe_machine(), "results": self.results}
        file.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
