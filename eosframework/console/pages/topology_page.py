"""The page of the topology: its graph with rates and lag."""

from __future__ import annotations

from collections import Counter
from urllib.parse import quote

from eosframework.console.application import Application
from eosframework.console.drawing.topology_picture import picture_of
from eosframework.console.pages.page import Console, Fields, Page
from eosframework.runtime.application_status import ApplicationStatus
from eosframework.topology.graph.description import Box, BoxKind, draw


def topology_page(console: Console, fields: Fields) -> Page:
    """Return the page of the topology.

    Raises:
        TopologyError: the topology does not resolve.
    """
    app = console.app
    graph = app.graph()
    reading = app.overview()
    diagram = draw(graph)
    status = None if reading.value is None else reading.value.status
    lags = Counter[str]() if status is None else lag_by_topic(status)
    figures = {box.id: figures_of(app, box, lags) for box in diagram.boxes}
    values = {
        "picture": picture_of(diagram, figures, link_to),
        "reading": reading,
        "status": status,
        "lag": sum(lags.values()),
    }
    return Page("topology.html", "Topology", values)


def lag_by_topic(status: ApplicationStatus) -> Counter[str]:
    """Return the lag of each source topic."""
    lags: Counter[str] = Counter()
    for task in status.tasks:
        for partition in task.partitions:
            lags[partition.partition.rpartition("[")[0]] += partition.lag
    return lags


def figures_of(app: Application, box: Box, lags: Counter[str]) -> str:
    """Return the second line of a box: rate and lag of a topic."""
    if box.topic is None or box.kind in (BoxKind.STEP, BoxKind.TABLE):
        return ""
    is_read = box.topic in lags
    history = app.history
    rate = (
        history.processed_per_second(box.topic)
        if is_read
        else history.written_per_second(box.topic)
    )
    shown = [] if rate is None else [f"{rate:,.1f} offsets/s"]
    return ", ".join([*shown, *([f"lag {lags[box.topic]:,}"] if is_read else [])])


def link_to(box: Box) -> str:
    """Return the address of the page about a box."""
    if box.kind is BoxKind.DEAD_LETTERS:
        return "/dead-letters"
    if box.kind is BoxKind.TABLE:
        return "/positions"
    if box.stores:
        return f"/state?store={quote(box.stores[0])}"
    if box.sub_topology is not None:
        return f"/tasks#{quote(box.sub_topology)}"
    return f"/positions#{quote(box.topic or '')}"
