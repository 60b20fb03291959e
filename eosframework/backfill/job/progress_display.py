"""The display of a job's progress: redrawn on a terminal, otherwise occasional log events."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Self

import structlog
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from eosframework.backfill.job.job_entry import JobState
from eosframework.backfill.job.job_status import JobStatus, StageStatus, StatusTracker
from eosframework.process.terminal_console import TerminalConsole
from eosframework.topology.graph.graph import Graph

EVENT_SECONDS = 10.0
BAR_WIDTH = 30
TASKS_SHOWN = 16
"""Tasks listed by stage, incomplete ones first; the rest is counted."""


class ProgressDisplay:
    """Displays one job while it runs.

    Args:
        graph: of the application.
        console: target; None: standard error.
    """

    def __init__(self, graph: Graph, console: Console | None = None) -> None:
        self._tracker = StatusTracker(graph)
        self._console = console or TerminalConsole(stderr=True)
        is_terminal = self._console.is_terminal
        self._live = Live(console=self._console, auto_refresh=False) if is_terminal else None
        self._events = structlog.get_logger("eosframework.backfill").bind(
            application=graph.application
        )
        self._event_due = time.monotonic() + EVENT_SECONDS

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, state: JobState) -> JobStatus:
        """Show a state; may be called at any rate."""
        status = self._tracker.look(state, time.time())
        if self._live is not None:
            self._live.update(drawn(status), refresh=True)
        elif time.monotonic() >= self._event_due:
            self._event_due = time.monotonic() + EVENT_SECONDS
            self._log(status)
        return status

    def _log(self, status: JobStatus) -> None:
        running = next((s for s in status.stages if not s.complete), None)
        if running is not None:
            self._events.info(
                "backfill_progress",
                job=status.job.name,
                stage=running.name,
                records=running.records,
                per_second=_rounded(running.per_second),
                seconds_left=_rounded(running.seconds_left),
                tasks_complete=sum(task.complete for task in running.tasks),
                tasks=len(running.tasks),
            )


def drawn(status: JobStatus) -> Group:
    """Return a job's status for people."""
    rows = Table.grid(padding=(0, 2))
    for stage in status.stages:
        rows.add_row(*_stage_row(stage))
        if not stage.complete:
            _add_tasks(rows, stage)
    if status.tables is not None:
        rows.add_row(Text("tables"), Text("complete" if status.tables else "not complete"), Text())
    return Group(Text(headline(status)), rows)


def headline(status: JobStatus) -> str:
    """Return a job's status in one line."""
    job = status.job
    started = datetime.fromtimestamp(job.created_at / 1000, UTC)
    if status.cut_over_at is not None:
        moment = datetime.fromtimestamp(status.cut_over_at / 1000, UTC)
        stands = f"cut over at {moment:%Y-%m-%d %H:%M:%S} UTC"
    else:
        stands = "complete" if status.complete else "not complete"
    beside = "" if job.suffix is None else f" into topics and tables with suffix {job.suffix}"
    return (
        f"job {job.name} of {job.application}{beside}, started at "
        f"{started:%Y-%m-%d %H:%M:%S} UTC: {stands}"
    )


def _stage_row(stage: StageStatus) -> tuple[Text, ProgressBar | Text, Text]:
    done, total = stage.done, stage.total
    if stage.complete:
        bar = ProgressBar(total=1, completed=1, width=BAR_WIDTH)
    elif done is None or total is None:
        finished = sum(task.complete for task in stage.tasks)
        bar = Text(f"{finished} of {len(stage.tasks)} tasks complete")
    else:
        bar = ProgressBar(total=max(total, 1), completed=done, width=BAR_WIDTH)
    parts = [f"{stage.records:,} records"]
    if not stage.complete and done is not None and total:
        parts.append(f"{100 * done / total:.1f}%")
    if stage.per_second is not None:
        parts.append(f"{stage.per_second:,.0f}/s")
    if stage.seconds_left is not None:
        parts.append(f"{timedelta(seconds=round(stage.seconds_left))} left")
    for count, what in _troubles(stage):
        parts.append(f"{count:,} {what}")
    return Text(stage.name), bar, Text("  ".join(parts))


def _troubles(stage: StageStatus) -> list[tuple[int, str]]:
    counted = [
        (sum(task.late for task in stage.tasks), "late"),
        (sum(task.skipped for task in stage.tasks), "skipped"),
        (sum(task.dead_letters for task in stage.tasks), "dead letters"),
    ]
    return [(count, what) for count, what in counted if count]


def _add_tasks(rows: Table, stage: StageStatus) -> None:
    ordered = sorted(stage.tasks, key=lambda task: (task.complete, task.partition))
    for task in ordered[:TASKS_SHOWN]:
        if task.complete:
            how_far = "complete"
        elif task.done is None or not task.total:
            how_far = "" if task.records else "has not begun"
        else:
            how_far = f"{100 * task.done / task.total:.1f}%"
        name = f"  {task.sub_topology}[{task.partition}]"
        rows.add_row(Text(name), Text(how_far), Text(f"{task.records:,} records"))
    if len(ordered) > TASKS_SHOWN:
        rows.add_row(Text(f"  and {len(ordered) - TASKS_SHOWN} more tasks"), Text(), Text())


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)
