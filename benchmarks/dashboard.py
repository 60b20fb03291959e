"""Draws panels of the dashboard from what a Prometheus has seen, for pages that show them.

python -m benchmarks.dashboard http://localhost:9090 --minutes 3 --out docs/howto/production.svg
"""

from __future__ import annotations

import argparse
import json
import re
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pygal
from pygal.style import CleanStyle

from benchmarks.charts import without_scripts

FILE = Path(__file__).parents[1] / "docker" / "grafana" / "dashboards" / "eosframework.json"
SHOWN = (
    "Read",
    "Written",
    "Lag",
    "Transactions",
    "A round of commits",
    "Records per transaction",
    "Rows",
    "Messages waiting in the outbox",
    "Memory",
)
COLUMNS = 3
WIDTH, HEIGHT = 460, 340
STEP_SECONDS = 5
UNITS = {"cps": "/s", "s": "s", "bytes": "MB", "short": ""}


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prometheus")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    end = time.time()
    start = end - arguments.minutes * 60
    panels = {panel["title"]: panel for panel in json.loads(FILE.read_text())["panels"]}
    rows = -(-len(SHOWN) // COLUMNS)
    size = f"0 0 {WIDTH * COLUMNS} {HEIGHT * rows}"
    picture = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "viewBox": size})
    for number, title in enumerate(SHOWN):
        chart = draw(panels[title], number, arguments.prometheus, start, end)
        chart.set("x", str(number % COLUMNS * WIDTH))
        chart.set("y", str(number // COLUMNS * HEIGHT))
        chart.set("width", str(WIDTH))
        chart.set("height", str(HEIGHT))
        picture.append(chart)
    arguments.out.write_bytes(ElementTree.tostring(picture) + b"\n")


def draw(
    panel: dict[str, Any], number: int, server: str, start: float, end: float
) -> ElementTree.Element:
    """Draw one panel over a time."""
    unit = UNITS[panel["fieldConfig"]["defaults"]["unit"]]
    scale = 1e-6 if unit == "MB" else 1
    chart: Any = pygal.XY(
        title=f"{panel['title']}{f', {unit}' if unit else ''}",
        style=CleanStyle(legend_font_size=10, title_font_size=15),
        js=[],
        show_dots=False,
        width=WIDTH,
        height=HEIGHT,
        legend_at_bottom=True,
        legend_at_bottom_columns=2,
        legend_box_size=9,
        include_x_axis=True,
    )
    chart.uuid = f"panel{number}"
    for target in panel["targets"]:
        for labels, values in asked(server, target["expr"], start, end):
            shown = [(moment - start, value * scale) for moment, value in values]
            chart.add(legend(target["legendFormat"], labels), shown)
    return without_scripts(chart)


def asked(
    server: str, query: str, start: float, end: float
) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
    """Return the series of a query, each with its labels."""
    query = query.replace("$application", ".*").replace("$__rate_interval", "20s")
    parameters = {"query": query, "start": start, "end": end, "step": STEP_SECONDS}
    address = f"{server}/api/v1/query_range?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(address, timeout=30) as answer:
        found = json.load(answer)["data"]["result"]
    return [
        (series["metric"], [(t, float(v)) for t, v in series["values"] if v != "NaN"])
        for series in found
    ]


def legend(form: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form)


if __name__ == "__main__":
    main()
