"""Published results: figures as JSON, tables as a page, charts.

A directory keeps the newest result of each benchmark, with the machine and the day that it belongs
to, so that benchmarks can be run one by one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from benchmarks.charts import draw
from benchmarks.machine import describe_machine, machine_line
from benchmarks.report import Report

FIGURES = "results.json"
PAGE = "results.md"

_INTRODUCTION = """# Results

Written by `make bench` (`python -m benchmarks NAME … --out DIRECTORY`): the newest run of each
benchmark. [results.json](results.json) has every figure, [performance](../performance.md) what they
mean.
"""


def publish(report: Report, directory: Path) -> None:
    """Put the results of a run beside those that the directory has of other benchmarks."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / FIGURES
    kept: dict[str, Any] = orjson.loads(file.read_bytes()) if file.exists() else {}
    for name, data in report.results.items():
        table = report.tables[name]
        kept[name] = {
            "measured": datetime.now(UTC).date().isoformat(),
            "machine": describe_machine(),
            "contestants": table.contestants,
            "machine_line": machine_line(table.contestants),
            "title": table.title,
            "columns": list(table.columns),
            "rows": [list(row) for row in table.rows],
            "charts": draw(name, data, directory),
            "data": data,
        }
    file.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2) + b"\n")
    sections = [_INTRODUCTION, *(_section(name, result) for name, result in sorted(kept.items()))]
    (directory / PAGE).write_text("\n".join(sections), encoding="utf-8")


def _section(name: str, result: dict[str, Any]) -> str:
    rows = [result["columns"], ["---"] * len(result["columns"]), *result["rows"]]
    lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    charts = [f"![{chart}]({chart})" for chart in result["charts"]]
    told = f"{result['measured']}; {result['machine_line']}."
    return "\n".join([f"## {name}", f"{result['title']}.", "", *lines, "", told, "", *charts, ""])
