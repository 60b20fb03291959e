"""Charts of what was measured, as SVG."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pygal
from pygal.style import CleanStyle

# Importing it leaves a hook for maps behind, which warns at each later import on Python 3.11.
sys.meta_path[:] = [hook for hook in sys.meta_path if "pygal" not in type(hook).__module__]

_LEGEND = {"legend_at_bottom": True, "legend_at_bottom_columns": 2, "truncate_legend": -1}

Series = Mapping[str, Sequence[float | None]]


def draw(name: str, data: dict[str, Any], directory: Path) -> list[str]:
    """Draw what there is to draw of a benchmark, and return the names of the files."""
    drawers = {"curves": _curves, "works": _works, "scale": _scale}
    return drawers[name](data, directory) if name in drawers else []


def _curves(data: dict[str, Any], directory: Path) -> list[str]:
    """Draw speed and latency over the commit interval, and over the number of partitions."""
    files: list[str] = []
    for over, what in (("commit_seconds", "commit interval, s"), ("partitions", "partitions")):
        points: list[dict[str, Any]] = data[over]
        labels = list(dict.fromkeys(f"{point[over]:g}" for point in points))
        names = list(dict.fromkeys(point["contestant"] for point in points))
        speeds = {name: _of(points, name, "records_per_second") for name in names}
        waits = {
            f"{name}, {which}": _of(points, name, f"{which}_milliseconds")
            for name in names
            for which in ("p50", "p99")
        }
        files += [
            _line(directory, f"speed-{over}.svg", f"records/s over {what}", labels, speeds),
            _line(
                directory,
                f"latency-{over}.svg",
                f"ms to a read_committed reader over {what}",
                labels,
                waits,
                logarithmic=True,
            ),
        ]
    return files


def _of(points: Sequence[Mapping[str, Any]], contestant: str, figure: str) -> list[float | None]:
    return [point[figure] for point in points if point["contestant"] == contestant]


def _scale(data: dict[str, Any], directory: Path) -> list[str]:
    points: list[dict[str, Any]] = data["tasks"]
    labels = [str(point["tasks"]) for point in points]
    megabytes = {"resident MB": [point["resident_megabytes"] for point in points]}
    threads = {"threads": [point["threads"] for point in points]}
    return [
        _line(
            directory,
            "scale-memory-threads.svg",
            "memory and threads of a worker over its tasks",
            labels,
            megabytes | threads,
            logarithmic=True,
        )
    ]


def _works(data: dict[str, Any], directory: Path) -> list[str]:
    names = list(dict.fromkeys(name for field in data.values() for name in field["contestants"]))
    chart: Any = pygal.Bar(
        title="records/s, one process or thread",
        style=CleanStyle,
        js=[],
        **_LEGEND,
        height=420,
        width=900,
    )
    chart.x_labels = list(data)
    for name in names:
        found = (field["contestants"].get(name, {}) for field in data.values())
        chart.add(name, [figures.get("median_records_per_second") for figures in found])
    return [_render(chart, directory, "works.svg")]


def _line(
    directory: Path,
    file: str,
    title: str,
    labels: Sequence[str],
    series: Series,
    *,
    logarithmic: bool = False,
) -> str:
    highest = max((value for values in series.values() for value in values if value), default=1)
    chart: Any = pygal.Line(
        title=title,
        style=CleanStyle,
        js=[],
        **_LEGEND,
        logarithmic=logarithmic,
        height=360,
        width=720,
        **({} if logarithmic else {"range": (0, highest)}),
    )
    chart.x_labels = list(labels)
    for name, values in series.items():
        chart.add(name, list(values))
    return _render(chart, directory, file)


def _render(chart: Any, directory: Path, file: str) -> str:
    """Write a chart with nothing in it that changes from run to run but figures."""
    chart.uuid = Path(file).stem
    (directory / file).write_bytes(ElementTree.tostring(without_scripts(chart)) + b"\n")
    return file


def without_scripts(chart: Any) -> ElementTree.Element:
    """Return a chart as SVG, without scripts and comments."""
    root: ElementTree.Element = chart.render_tree()
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("script", ElementTree.Comment):
                parent.remove(child)
    return root
