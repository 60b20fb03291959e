"""The first page: is it well, what is wrong, and how it went.

Internal: no module here is public.
"""

from __future__ import annotations

import time
from typing import Any

from eosframework.operations.console.application import Application
from eosframework.operations.console.charts import charts_of
from eosframework.operations.console.health import Seen, health_of
from eosframework.operations.console.memory import Point
from eosframework.operations.console.pages import Console, Fields, Page

MINUTES, HOURS = 1800.0, 86400.0
"""Seconds of the two periods that the charts show."""

MOST_PROBLEMS = 30


def overview_page(console: Console, fields: Fields) -> Page:
    """Return the first page.

    Raises:
        TopologyError: the topology does not resolve.
    """
    app = console.app
    app.graph()
    reading = app.overview()
    status = None if reading.value is None else reading.value.status
    hours = fields.get("period") == "hours"
    points = app.memory.points(hours=hours)
    health = health_of(_seen(app))
    values: dict[str, Any] = {
        "reading": reading,
        "status": status,
        "health": health,
        "problems": health.problems[:MOST_PROBLEMS],
        "lag": None if status is None else sum(task.lag for task in status.tasks),
        "hours": hours,
        "charts": charts_of(points, time.time(), HOURS if hours else MINUTES),
        "now": points[-1] if points else Point(0.0),
        "began_at": app.history.began_at,
        "is_asked": bool(app.addresses),
    }
    return Page("overview.html", "Overview", values)


def _seen(app: Application) -> Seen:
    reading = app.overview()
    status = None if reading.value is None else reading.value.status
    has_held = status is not None and any(task.held_back for task in status.tasks)
    letters = app.new_dead_letters()
    open_ = app.open_transactions().value if has_held else None
    return Seen(
        status,
        reading.error,
        app.processes(),
        app.firing,
        () if letters is None else letters["groups"],
        () if open_ is None else open_["hanging"],
    )
