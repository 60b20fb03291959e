"""The page of the tasks: by worker and partition, with takeovers as a timeline."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eosframework.console.drawing.timelines import ownership_timeline
from eosframework.console.pages.page import Console, Fields, Page


def tasks_page(console: Console, fields: Fields) -> Page:
    """Return the page of the tasks."""
    app = console.app
    reading = app.overview()
    processes = app.processes()
    ids = app.transactional_ids()
    answers = [answer.value for answer in processes.values() if answer.value is not None]
    states = {
        (answer["process"], task["task"]): task["state"]
        for answer in answers
        for task in answer.get("tasks", ())
    }
    report = None if reading.value is None else reading.value.report
    values: dict[str, Any] = {
        "reading": reading,
        "report": report,
        "ids": ids,
        "ids_by_task": {
            f"{entry['owner']['sub_topology']}[{entry['owner']['partition']}]": entry
            for entry in ids.value or ()
            if entry["owner"]
        },
        "states": states,
        "processes": processes,
        "history": app.history,
        "timeline": ownership_timeline(
            app.history.ownerships, app.history.began_at, datetime.now(UTC)
        ),
    }
    return Page("tasks.html", "Tasks", values)
