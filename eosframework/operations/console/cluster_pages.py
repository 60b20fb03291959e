"""The pages about what runs now: the topology with its figures, and the tasks.

Internal: no module here is public.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from eosframework.application.composition.application_status import ApplicationStatus
from eosframework.operations.console.application import Application
from eosframework.operations.console.edge_rates import edge_rates
from eosframework.operations.console.pages import Console, Fields, Page
from eosframework.operations.console.task_map import (
    SORTS,
    STATES,
    TaskChoice,
    cells_of,
    groups_of,
    worst,
)
from eosframework.operations.console.timelines import ownership_timeline
from eosframework.operations.console.topology_view import TopologyView, view_of


def topology_page(console: Console, fields: Fields) -> Page:
    """Return the page of the topology.

    Raises:
        TopologyError: the topology does not resolve.
    """
    app = console.app
    view = view_of(app.graph())
    reading = app.overview()
    status = None if reading.value is None else reading.value.status
    lags = Counter[str]() if status is None else lag_by_topic(status)
    values = {
        "view": view,
        "figures": figures_of(app, view, status, lags),
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


def figures_of(
    app: Application, view: TopologyView, status: ApplicationStatus | None, lags: Mapping[str, int]
) -> dict[str, Any]:
    """Return what changes on the topology's page, for its script.

    Args:
        app: of the console.
        view: of the topology.
        status: None: it was not read yet.
        lags: by source topic.
    """
    topics = {node.name for node in view.nodes if node.kind == "topic"}
    topics |= {edge.topic for edge in view.edges if edge.topic is not None}
    known = {topic: _topic_figures(app, topic, lags) for topic in sorted(topics)}
    rates = {topic: figures["rate"] for topic, figures in known.items()}
    return {
        "topics": known,
        "edges": edge_rates(view, rates),
        "parts": {} if status is None else _part_figures(status),
        "late": late_records(app),
        "dead": _dead_letters_by_step(app, view),
    }


def _topic_figures(app: Application, topic: str, lags: Mapping[str, int]) -> dict[str, Any]:
    history = app.history
    is_read = topic in lags
    rate = history.processed_per_second(topic) if is_read else history.written_per_second(topic)
    return {"rate": rate, "lag": lags[topic] if is_read else None}


def _part_figures(status: ApplicationStatus) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    failing = {failure.task for failure in status.failures}
    for task in status.tasks:
        part = task.task.rpartition("[")[0]
        figures = found.setdefault(part, {"tasks": 0, "lag": 0, "unowned": 0, "failing": 0})
        figures["tasks"] += 1
        figures["lag"] += task.lag
        figures["unowned"] += task.owner is None
        figures["failing"] += task.task in failing
    return found


def late_records(app: Application) -> Counter[str]:
    """Return the late records that the asked workers have counted since they started, by step."""
    found: Counter[str] = Counter()
    for answer in app.answers.values():
        for entry in answer.get("late", ()):
            found[entry["step"]] += entry["records"]
    return found


def _dead_letters_by_step(app: Application, view: TopologyView) -> Counter[str]:
    """Return the dead letters of each step, as they were read last; none before that.

    A record may fail in a part of a step, whose name follows the step's: `orders: decode value`.
    """
    steps = {step for node in view.nodes for badge in node.badges for step in badge.steps}
    found: Counter[str] = Counter()
    value = app.known("dead letters").value
    for group in () if value is None else value["groups"]:
        own = group["step"]
        step = own if own in steps else own.partition(": ")[0]
        found[step] += group["count"] - group["replayed"]
    return found


MOST_ROWS = 20
"""Number of tasks in the table of the worst."""


def tasks_page(console: Console, fields: Fields) -> Page:
    """Return the page of the tasks: a map with a cell for each, and a table of the worst.

    Args:
        console: of the application.
        fields: `part`, `state` and `text` choose tasks, `task` chooses one, `sort` orders them.
    """
    app = console.app
    reading = app.overview()
    status = None if reading.value is None else reading.value.status
    processes = app.processes()
    cells = [] if status is None else cells_of(status, app.answers)
    choice = TaskChoice.parse(fields)
    chosen = choice.applied(cells)
    rows = (worst(chosen) if choice.sort == SORTS[0] else chosen)[:MOST_ROWS]
    writers = app.writers()
    ownerships = app.history.ownerships
    owned = {cell.task: ownerships[cell.task] for cell in rows if cell.task in ownerships}
    values: dict[str, Any] = {
        "reading": reading,
        "status": status,
        "choice": choice,
        "sub_topologies": sorted({cell.part for cell in cells}),
        "groups": groups_of(chosen),
        "states": STATES,
        "sorts": SORTS,
        "count": len(chosen),
        "all": len(cells),
        "rows": rows,
        "failures": {} if status is None else {f.task: f for f in status.failures},
        "writers": writers.value or {},
        "writers_error": writers.error,
        "processes": processes,
        "history": app.history,
        "timeline": ownership_timeline(owned, app.history.began_at, datetime.now(UTC)),
    }
    return Page("tasks.html", "Tasks", values)
